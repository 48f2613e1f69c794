"""Mixtures with a window in some layers: Maple, Mellum 2, MiMo 2."""

from edgellm.architectures.blocks import Style, embed, head, ignore_dense, layer, layers
from edgellm.architectures.moe import Experts, feed
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import global_base, local_rope_spec, rope_spec
from edgellm.program import ProgramBuilder, Value


@register("maple", experts=True)
def maple(p: Params, b: ProgramBuilder) -> Value:
    """Maple: layers with a window know positions; the experts' gates are bounded."""
    rope = local_rope_spec(p, "neox", global_base(p), n_rot=p.local_rot, scaled=True)
    windows = p.windows(period=0)
    style = Style(head_norms=True, out_bias=False)
    experts = Experts(limits=p.numbers_per_layer("swiglu_clamp_exp"))
    x = embed(p, b)
    for i in layers(p, b):
        turn = rope if windows[i] else None
        x = layer(p, b, x, i, rope=turn, window=windows[i], style=style, feed=feed(p, b, i, style, experts))
    return head(p, b, x)


@register("mellum", experts=True)
def mellum(p: Params, b: ProgramBuilder) -> Value:
    """Mellum 2: layers with a window never stretch their rotation."""
    everywhere, near = rope_spec(p, "neox"), local_rope_spec(p, "neox", global_base(p), own=False)
    windows = p.windows(period=4)
    style, experts = Style(head_norms=True), Experts(use_scale=True)
    x = embed(p, b)
    for i in layers(p, b):
        rope = near if windows[i] else everywhere
        x = layer(p, b, x, i, rope=rope, window=windows[i], style=style, feed=feed(p, b, i, style, experts))
    return head(p, b, x)


@register("mimo2", experts=True)
def mimo2(p: Params, b: ProgramBuilder) -> Value:
    """MiMo 2: sinks, and a factor of what attention adds."""
    everywhere, near = rope_spec(p, "neox"), local_rope_spec(p, "neox", 10000.0)
    windows = p.windows(period=0)
    values = p.number("attention.value_scale", 0.0) or 1.0
    style, experts = Style(sinks=True, bare=True, out_bias=False, values=values), Experts("sigmoid")
    x = embed(p, b)
    for i in layers(p, b):
        ignore_dense(b, i)
        rope = near if windows[i] else everywhere
        x = layer(p, b, x, i, rope=rope, window=windows[i], style=style, feed=feed(p, b, i, style, experts))
    return head(p, b, x)
