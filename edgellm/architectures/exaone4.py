"""EXAONE 4 and its mixture: layers with a window know positions, the others do not."""

from edgellm.architectures.blocks import Style, embed, head, layer, layers
from edgellm.architectures.moe import experts_of, feed
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, Value

LAYERS_32B = 64
"""Only the 32B model has windows, and no key tells."""


@register("exaone4")
def exaone4(p: Params, b: ProgramBuilder) -> Value:
    """Only what is added to the stream is normalised."""
    rope = rope_spec(p, "neox", factors="rope_freqs.weight")
    local = p.n_layer == LAYERS_32B
    windows = p.windows(period=4, default=4096) if local else (None,) * p.n_layer
    style = Style(head_norms=True, pre_norms=False, post_norms=True, out_bias=False)
    x = embed(p, b)
    for i in layers(p, b):
        turn = rope if windows[i] or not local else None
        x = layer(p, b, x, i, rope=turn, window=windows[i], style=style)
    return head(p, b, x)


@register("exaone-moe", experts=True)
def exaone_moe(p: Params, b: ProgramBuilder) -> Value:
    """K-EXAONE."""
    rope = rope_spec(p, "neox", factors="rope_freqs.weight")
    windows = p.windows(period=4)
    style, experts = Style(head_norms=True, out_bias=False), experts_of(p)
    x = embed(p, b)
    for i in layers(p, b):
        turn = rope if windows[i] else None
        x = layer(p, b, x, i, rope=turn, window=windows[i], style=style, feed=feed(p, b, i, style, experts))
    return head(p, b, x)
