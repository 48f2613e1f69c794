"""Falcon: attention and feed-forward read the same stream, in the larger models through norms of their own."""

from edgellm.architectures.blocks import Style, embed, head, layers, parallel_layer
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, Value


@register("falcon")
def falcon(p: Params, b: ProgramBuilder) -> Value:
    """Where there are two norms, the second is attention's."""
    rope = rope_spec(p, "neox")
    style = Style(layer_norm=True, gated=False, activation="gelu", out_bias=False)
    x = embed(p, b)
    for i in layers(p, b):
        two = b.has(f"blk.{i}.attn_norm_2.weight")
        norms = ("attn_norm_2", "attn_norm") if two else ("attn_norm", None)
        x = parallel_layer(p, b, x, i, rope=rope, style=style, norms=norms)
    return head(p, b, x, style=style)
