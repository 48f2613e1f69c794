"""LFM 2: most layers are a short convolution between two gates, some attend."""

from edgellm.architectures.blocks import Style, attention, embed, head, layers, norm
from edgellm.architectures.mixers import is_recurrent, join, short_conv
from edgellm.architectures.moe import Experts, experts_of, feed
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, Value


@register("lfm2", "lfm2moe", experts=True)
def lfm2(p: Params, b: ProgramBuilder) -> Value:
    """Layers with 0 key heads are convolutions; a window is that of every other layer."""
    p.allow_layers_without_heads()
    rope = rope_spec(p, "neox")
    taps = p.integer("shortconv.l_cache", minimum=2)
    window = p.integer("attention.sliding_window", 0, minimum=0) or None
    style, experts = Style(head_norms=True), Experts(experts_of(p).scoring)
    x = embed(p, b)
    for i in layers(p, b):
        h = norm(p, b, x, f"blk.{i}.attn_norm")
        if is_recurrent(p, i):
            x = b.add(*join(p, b, x, short_conv(p, b, h, i, taps), i, "shortconv.out_proj"))
        else:
            x = b.add(*join(p, b, x, attention(p, b, h, i, style, rope, window), i, "attn_output"))
        x = b.add(x, feed(p, b, i, style, experts)(norm(p, b, x, f"blk.{i}.ffn_norm")))
    return head(p, b, x, norm="token_embd_norm.weight")
