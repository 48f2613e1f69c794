"""MiniMax 01, mostly of linear attention, and M3, whose attention is to chosen blocks of keys."""

from edgellm.architectures.blocks import Style, attention, embed, head, layer, layers, norm
from edgellm.architectures.mixers import delta_layers, join, lightning
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


@register("minimax-01", experts=True)
def minimax_01(p: Params, b: ProgramBuilder) -> Value:
    """What attention and experts read, not the stream, goes on beside what they make."""
    b.ignore("blk.*.attn_gate.scale", "blk.*.attn_qkv.scale", "blk.*.attn_output.scale")
    rope, factor, recurrent = rope_spec(p, "neox"), p.number("residual_scale"), delta_layers(p, 8)
    style, experts = Style(), experts_of(p, normalised=True)
    x = embed(p, b)
    for i in layers(p, b):
        h = norm(p, b, x, f"blk.{i}.attn_norm")
        y = lightning(p, b, h, i) if recurrent[i] else attention(p, b, h, i, style, rope, None)
        h, y = join(p, b, h, y, i, "attn_output", "unused" if recurrent[i] else "product")
        h = norm(p, b, b.add(y, b.scale(h, factor)), f"blk.{i}.ffn_norm")
        x = b.add(feed(p, b, i, style, experts)(h), b.scale(h, factor))
    return head(p, b, x)
