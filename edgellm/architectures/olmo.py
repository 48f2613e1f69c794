"""OLMo: norms without weights, later norms after instead of before."""

from edgellm.architectures.blocks import Style, embed, head, layer, layers
from edgellm.architectures.moe import Experts, feed
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import global_base, local_rope_spec, rope_spec
from edgellm.program import ProgramBuilder, Value


@register("olmo")
def olmo(p: Params, b: ProgramBuilder) -> Value:
    """Layer norms without weights; queries, keys and values may be bounded."""
    rope = rope_spec(p, "norm")
    style = Style(
        layer_norm=True, norm_weights=False, clamp=p.number("attention.clamp_kqv", 0.0) or None, out_bias=False
    )
    x = embed(p, b)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=rope, style=style)
    return head(p, b, x, norm=None, style=style)


@register("olmo2")
def olmo2(p: Params, b: ProgramBuilder) -> Value:
    """OLMo 2 and 3: only what is added to the stream is normalised; layers with a window never stretch."""
    everywhere = rope_spec(p, "neox")
    near = local_rope_spec(p, "neox", global_base(p), own=False)
    windows = p.windows(period=4)
    style = Style(row_norms=True, pre_norms=False, post_norms=True, out_bias=False)
    x = embed(p, b)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=near if windows[i] else everywhere, window=windows[i], style=style)
    return head(p, b, x)


@register("olmoe", experts=True)
def olmoe(p: Params, b: ProgramBuilder) -> Value:
    """OLMoE: all queries normalised together, and all keys."""
    rope, style = rope_spec(p, "neox"), Style(row_norms=True, out_bias=False)
    experts = Experts(normalised=False)
    x = embed(p, b)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=rope, style=style, feed=feed(p, b, i, style, experts))
    return head(p, b, x)
