"""GLM 5 Next: several residual streams that a matrix of each layer's own combines, with Kimi's delta rule."""

from edgellm.architectures.blocks import Feed, Style, embed, head, layers, norm
from edgellm.architectures.hyper import Streams, mean, spread, through
from edgellm.architectures.kda import bounded_decays, delta_attention, inner
from edgellm.architectures.mixers import is_recurrent
from edgellm.architectures.mla import Latent, latent_attention, refuse_long_contexts
from edgellm.architectures.moe import experts_of, feed
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.program import ProgramBuilder, Value


@register("glm5-next", experts=True)
def glm5_next(p: Params, b: ProgramBuilder) -> Value:
    """An indexer chooses blocks of keys, of which short contexts have too few; attention knows no positions."""
    p.allow_layers_without_heads()
    p.refuse_other("attention.indexer.kpool_select_tail", True)
    refuse_long_contexts(p)
    b.ignore("blk.*.indexer.*", "blk.*.indexer_compressor_*", "blk.*.scale", "blk.*.attn_*.bias")
    widths, streams, style = Latent.of(p), Streams.of(p, combined=True), Style()
    experts = experts_of(p, "sigmoid")
    x = spread(p, b, embed(p, b), streams)
    for i in layers(p, b):
        x = through(p, b, x, f"blk.{i}.hc_attn", streams, _attention(p, b, i, widths))
        x = through(p, b, x, f"blk.{i}.hc_ffn", streams, _feed(p, b, i, feed(p, b, i, style, experts)))
    return head(p, b, mean(p, b, b.select_rows(x), streams))


def _attention(p: Params, b: ProgramBuilder, i: int, widths: Latent) -> Feed:
    blk = f"blk.{i}.ssm"

    def attend(x: Value) -> Value:
        x = norm(p, b, x, f"blk.{i}.attn_norm")
        if is_recurrent(p, i):
            narrow = p.integer("kda.head_dim")
            g = b.matmul(b.matmul(x, f"{blk}_f_a", narrow), f"{blk}_f_b", inner(p))
            gate = b.matmul(b.matmul(x, f"{blk}_g_a", narrow), f"{blk}_g_b", inner(p))
            y = delta_attention(p, b, x, i, bounded_decays(p, b, g, i, -1.0), gate, decays=True)
        else:
            y = latent_attention(p, b, x, i, widths, None, widths.key**-0.5, q_scale="unused")
        return b.matmul(y, f"blk.{i}.attn_output", p.n_embd, scale_use="unused")

    return attend


def _feed(p: Params, b: ProgramBuilder, i: int, network: Feed) -> Feed:
    return lambda x: network(norm(p, b, x, f"blk.{i}.ffn_norm"))
