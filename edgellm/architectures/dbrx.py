"""DBRX: a mixture with layer norms and bounded queries, keys and values."""

from edgellm.architectures.blocks import Style, embed, head, layer, layers
from edgellm.architectures.moe import Experts, feed
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, Value


@register("dbrx", experts=True)
def dbrx(p: Params, b: ProgramBuilder) -> Value:
    """The norm before the experts has attention's name."""
    rope = rope_spec(p, "neox")
    clamp = p.number("attention.clamp_kqv") or None
    style, experts = Style(layer_norm=True, clamp=clamp, ffn_norm="attn_output_norm", out_bias=False), Experts()
    x = embed(p, b)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=rope, style=style, feed=feed(p, b, i, style, experts))
    return head(p, b, x, style=style)
