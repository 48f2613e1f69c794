"""SmallThinker: the router reads the stream before attention, and ReLU gates."""

from edgellm.architectures.blocks import Style, embed, head, layer, layers
from edgellm.architectures.moe import experts_of, feed
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import global_base, local_rope_spec, rope_spec
from edgellm.program import ProgramBuilder, Value

WINDOW = 4096
"""Whatever the key says."""


@register("smallthinker", experts=True)
def smallthinker(p: Params, b: ProgramBuilder) -> Value:
    """The first layer of four sees everything and knows no positions, the others have a window of 4096."""
    windows = p.windows(period=4, first=True)
    local = any(windows)
    everywhere, near = rope_spec(p, "neox"), local_rope_spec(p, "neox", global_base(p), scaled=True)
    style = Style()
    experts = experts_of(p, normalised=True, activation="relu")
    x = embed(p, b)
    for i in layers(p, b):
        turn = None if local and i % 4 == 0 else near if windows[i] else everywhere
        logits = b.matmul(x, f"blk.{i}.ffn_gate_inp", p.n_expert)
        if i == p.depth - 1:
            logits = b.select_rows(logits)
        window = windows[i] and WINDOW
        x = layer(p, b, x, i, rope=turn, window=window, style=style, feed=feed(p, b, i, style, experts, logits))
    return head(p, b, x)
