"""Laguna: attention gated head by head, a window in three layers of four, and experts."""

from edgellm.architectures.blocks import Style, embed, head, layer, layers
from edgellm.architectures.moe import experts_of, feed
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import global_base, local_rope_spec, rope_spec
from edgellm.program import ProgramBuilder, Value


@register("laguna", experts=True)
def laguna(p: Params, b: ProgramBuilder) -> Value:
    """Layers with a window turn at their own base and width, and never stretch."""
    everywhere = rope_spec(p, "neox")
    near = local_rope_spec(p, "neox", global_base(p), n_rot=p.local_rot)
    windows = p.windows(period=4, first=True)
    style, experts = Style(head_norms=True, gate="softplus", out_bias=False), experts_of(p, "sigmoid")
    x = embed(p, b)
    for i in layers(p, b):
        rope = near if windows[i] else everywhere
        x = layer(p, b, x, i, rope=rope, window=windows[i], style=style, feed=feed(p, b, i, style, experts))
    return head(p, b, x)
