"""Hunyuan: heads normalised after their rotation; its mixtures."""

from edgellm.architectures.blocks import Style, embed, head, ignore_dense, layer, layers
from edgellm.architectures.moe import Experts, experts_of, feed
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import global_base, rope_spec
from edgellm.program import ProgramBuilder, RopeSpec, Value


def _rope(p: Params) -> RopeSpec:
    """Return the rotation; a factor alpha raises its base (Hunyuan's way to longer contexts)."""
    alpha = p.number("rope.scaling.alpha", 0.0)
    power = p.head_dim / max(1, p.head_dim - 2)
    return rope_spec(p, "neox", base=global_base(p) * alpha**power if alpha else None)


@register("hunyuan-dense", "hunyuan_vl")
def hunyuan(p: Params, b: ProgramBuilder) -> Value:
    """For text the axes of the VL model's rotation turn alike."""
    rope, style = _rope(p), Style(head_norms=True, norm_after_rope=True)
    x = embed(p, b)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=rope, style=style)
    return head(p, b, x)


@register("hunyuan-moe", experts=True)
def hunyuan_moe(p: Params, b: ProgramBuilder) -> Value:
    """Hunyuan A13B: an expert takes part in every row.  Its experts are as wide as ``feed_forward_length`` says."""
    rope, style, experts = rope_spec(p, "neox"), Style(head_norms=True, norm_after_rope=True), Experts()
    x = embed(p, b)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=rope, style=style, feed=feed(p, b, i, style, experts))
    return head(p, b, x)


@register("hy_v3", experts=True)
def hy_v3(p: Params, b: ProgramBuilder) -> Value:
    """Hy 3: heads normalised before their rotation."""
    rope, style = rope_spec(p, "neox"), Style(head_norms=True, ffn_scale="sum")
    experts = experts_of(p, "sigmoid", use_scale=True)
    x = embed(p, b)
    for i in layers(p, b):
        ignore_dense(b, i)
        x = layer(p, b, x, i, rope=rope, style=style, feed=feed(p, b, i, style, experts))
    return head(p, b, x)
