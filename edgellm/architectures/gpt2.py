"""GPT-2 and StarCoder 1: learned positions, layer norms and GELU."""

from edgellm.architectures.blocks import Style, embed, head, layer, layers
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.program import ProgramBuilder, Value


@register("gpt2", "starcoder")
def gpt2(p: Params, b: ProgramBuilder) -> Value:
    """Positions are added to the embedding, so keys cannot be moved."""
    style = Style(layer_norm=True, gated=False, activation="gelu", movable=False)
    x = b.add(embed(p, b), b.embed_positions("position_embd.weight", p.n_embd, p.n_ctx_train))
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=None, style=style)
    return head(p, b, x, style=style)
