"""Qwen 1: one matrix for queries, keys and values, and half the feed-forward width that the file says."""

from edgellm.architectures.blocks import Feed, Style, embed, ffn, head, layer, layers
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, Value


@register("qwen")
def qwen(p: Params, b: ProgramBuilder) -> Value:
    """Gate and upward matrix are each half of ``feed_forward_length``."""
    rope, style = rope_spec(p, "neox"), Style(out_bias=False)
    x = embed(p, b)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=rope, style=style, feed=_half(p, b, i, style))
    return head(p, b, x)


def _half(p: Params, b: ProgramBuilder, i: int, style: Style) -> Feed:
    return lambda x: ffn(p, b, x, i, style, n_ff=p.n_ff[i] // 2)
