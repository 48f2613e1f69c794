"""Hy 4: several residual streams that each go on by themselves, gated latent attention with sinks, and experts."""

from edgellm.architectures.blocks import Feed, Style, embed, gated, head, layers, norm
from edgellm.architectures.hyper import Streams, gathered, spread, through
from edgellm.architectures.mla import Latent, latent_attention, refuse_long_contexts
from edgellm.architectures.moe import Experts, experts_of, feed
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, RopeSpec, Value


@register("hy_v4", experts=True)
def hy_v4(p: Params, b: ProgramBuilder) -> Value:
    """An indexer chooses the keys to attend to, if the file has one; short contexts have too few to choose from."""
    b.ignore("blk.*.indexer.*", "blk.*.scale")
    if p.integer("attention.indexer.top_k", 0, minimum=0):
        refuse_long_contexts(p)
    widths, streams, style, read = Latent.of(p), Streams.of(p, combined=False), Style(), experts_of(p, "sigmoid")
    rope = rope_spec(p, "norm", n_rot=widths.n_rot, offset=widths.rank)
    experts = Experts(read.scoring, read.normalised, read.scale, limits=p.numbers_per_layer("swiglu_clamp_exp"))
    x = spread(p, b, embed(p, b), streams)
    for i in layers(p, b):
        x = through(p, b, x, f"blk.{i}.hc_attn", streams, _attention(p, b, i, widths, rope))
        x = through(p, b, x, f"blk.{i}.hc_ffn", streams, _feed(p, b, i, feed(p, b, i, style, experts)))
    return head(p, b, b.select_rows(gathered(p, b, x, streams)))


def _attention(p: Params, b: ProgramBuilder, i: int, widths: Latent, rope: RopeSpec) -> Feed:
    def attend(x: Value) -> Value:
        x = norm(p, b, x, f"blk.{i}.attn_norm")
        y = latent_attention(p, b, x, i, widths, rope, widths.key**-0.5, q_scale="unused")
        y = gated(b, x, y, i, p.n_head[i], "sigmoid")
        return b.matmul(y, f"blk.{i}.attn_output", p.n_embd, scale_use="unused")

    return attend


def _feed(p: Params, b: ProgramBuilder, i: int, network: Feed) -> Feed:
    return lambda x: network(norm(p, b, x, f"blk.{i}.ffn_norm"))
