"""MiniMax M3: experts with a bounded gate, and attention to chosen blocks of keys."""

from edgellm.architectures.blocks import Style, embed, head, layer, layers
from edgellm.architectures.mla import refuse_long_contexts
from edgellm.architectures.moe import Experts, experts_of, feed
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, Value


@register("minimax-m3", experts=True)
def minimax_m3(p: Params, b: ProgramBuilder) -> Value:
    """An indexer chooses blocks; short contexts have too few to choose from."""
    refuse_long_contexts(p, p.integer("attention.indexer.block_size"))
    b.ignore("blk.*.indexer.*")
    rope = rope_spec(p, "neox")
    style = Style(head_norms=True, activation="gelu_quick", limit=7.0, offset=1.0, out_bias=False)
    read = experts_of(p, "sigmoid")
    experts = Experts(read.scoring, read.normalised, read.scale, "gelu_quick", (7.0,) * p.n_layer, 1.0)
    x = embed(p, b)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=rope, style=style, feed=feed(p, b, i, style, experts))
    return head(p, b, x)
