"""Gemma 1: embeddings scaled to unit variance and GELU gates."""

from edgellm.architectures.blocks import Style, embed, head, layer
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, Value


@register("gemma")
def gemma(p: Params, b: ProgramBuilder) -> Value:
    """Converters add the one of Gemma's ``1 + weight`` norms to the weights."""
    rope = rope_spec(p, "neox")
    style = Style(activation="gelu")
    x = b.scale(embed(p, b), p.n_embd**0.5)
    for i in range(p.n_layer):
        x = layer(p, b, x, i, rope=rope, style=style)
    return head(p, b, x)
