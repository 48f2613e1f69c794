"""Trinity: gated attention, norms on both sides, and experts after the first layers."""

from edgellm.architectures.blocks import Style, embed, head, layer, layers
from edgellm.architectures.moe import experts_of, feed
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import global_base, local_rope_spec, rope_spec
from edgellm.program import ProgramBuilder, Value


@register("afmoe", experts=True)
def afmoe(p: Params, b: ProgramBuilder) -> Value:
    """Every fourth layer sees everything and knows no positions."""
    everywhere, near = rope_spec(p, "neox"), local_rope_spec(p, "neox", global_base(p), scaled=True)
    windows = p.windows(period=4)
    style = Style(head_norms=True, gate="sigmoid", post_norms=True, out_bias=False)
    experts = experts_of(p, "sigmoid")
    x = b.scale(embed(p, b), p.n_embd**0.5)
    for i in layers(p, b):
        turn = None if (i + 1) % 4 == 0 else near if windows[i] else everywhere
        x = layer(p, b, x, i, rope=turn, window=windows[i], style=style, feed=feed(p, b, i, style, experts))
    return head(p, b, x)
