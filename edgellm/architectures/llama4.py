"""Llama 4: three layers see chunks and know positions, every fourth sees everything and knows none."""

from edgellm.architectures.blocks import Style, embed, head, layer, layers
from edgellm.architectures.moe import Experts, feed
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import global_base, local_rope_spec, rope_spec
from edgellm.program import ProgramBuilder, Value

CHUNK = 8192
EXPERTS_MAVERICK = 128
"""Maverick has no head norms, and no key tells."""


@register("llama4", experts=True)
def llama4(p: Params, b: ProgramBuilder) -> Value:
    """A sigmoid weighs what an expert reads."""
    chunks = p.integer("attention.sliding_window", CHUNK, minimum=0) != 0
    windows = p.windows(period=4, size=CHUNK if chunks else 0)
    everywhere = rope_spec(p, "norm", factors="rope_freqs.weight")
    near = local_rope_spec(p, "norm", global_base(p), scaled=True, factors="rope_freqs.weight")
    plain = Style(unit_norms=p.n_expert != EXPERTS_MAVERICK, chunked=True)
    whole = Style(sharpen=(0.1, CHUNK, 1) if chunks else None)
    experts = Experts("sigmoid", normalised=False, weigh_before=True)
    x = embed(p, b)
    for i in layers(p, b):
        turns = not chunks or (i + 1) % 4 != 0
        style = plain if turns else whole
        rope = (near if windows[i] else everywhere) if turns else None
        x = layer(p, b, x, i, rope=rope, window=windows[i], style=style, feed=feed(p, b, i, style, experts))
    return head(p, b, x)
