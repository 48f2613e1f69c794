"""PLaMo 1 and 3."""

from edgellm.architectures.blocks import Style, embed, head, layer, layers, parallel_layer
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import local_rope_spec, rope_spec
from edgellm.program import ProgramBuilder, Value


@register("plamo")
def plamo(p: Params, b: ProgramBuilder) -> Value:
    """PLaMo 1: attention and feed-forward read the same norm."""
    rope, style = rope_spec(p, "neox"), Style(out_bias=False)
    x = embed(p, b)
    for i in layers(p, b):
        x = parallel_layer(p, b, x, i, rope=rope, style=style)
    return head(p, b, x)


@register("plamo3")
def plamo3(p: Params, b: ProgramBuilder) -> Value:
    """PLaMo 3: norms on both sides and fused matrices; seven layers of eight have a window."""
    everywhere, near = rope_spec(p, "neox"), local_rope_spec(p, "neox", 10000.0)
    windows = p.windows(period=8)
    style = Style(head_norms=True, bare=True, fused=True, post_norms=True, out_bias=False)
    x = embed(p, b)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=near if windows[i] else everywhere, window=windows[i], style=style)
    return head(p, b, x)
