"""Apertus: Llama with normalised heads, and xIELU in the place of a gate."""

from edgellm.architectures.blocks import Style, embed, head, layer, layers
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.architectures.xielu import xielu_feed
from edgellm.program import ProgramBuilder, Value


@register("apertus")
def apertus(p: Params, b: ProgramBuilder) -> Value:
    """Apertus: normalised heads, and a feed-forward network without a gate, of xIELU."""
    b.ignore("blk.*.ffn_*.scale")
    rope, style = rope_spec(p, "neox", factors="rope_freqs.weight"), Style(head_norms=True)
    x = embed(p, b)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=rope, style=style, feed=xielu_feed(p, b, i))
    return head(p, b, x)
