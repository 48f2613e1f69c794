"""Kimi Linear: layers with a delta rule that decays key by key, and some with latent attention, without positions."""

from edgellm.architectures.blocks import Style, embed, head, layers, norm
from edgellm.architectures.kda import delta_attention, inner
from edgellm.architectures.mixers import is_recurrent, join
from edgellm.architectures.mla import Latent, latent_attention
from edgellm.architectures.moe import Experts, experts_of, feed
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.program import ProgramBuilder, Value


@register("kimi-linear", experts=True)
def kimi_linear(p: Params, b: ProgramBuilder) -> Value:
    """Layers with 0 key heads are recurrent; all of them have the heads of the others."""
    p.allow_layers_without_heads()
    b.ignore("blk.*.scale", "blk.*.attn_*.bias")
    p.refuse_other("kda.safe_gate", False)
    p.refuse_other("attn_res.block_size")
    p.refuse_other("expert_latent_length")
    widths, style = Latent.of(p), Style()
    read = experts_of(p, "sigmoid")
    experts = Experts(read.scoring, True, read.scale)
    x = embed(p, b)
    for i in layers(p, b):
        h = norm(p, b, x, f"blk.{i}.attn_norm")
        if is_recurrent(p, i):
            x = b.add(*join(p, b, x, _delta(p, b, h, i), i, "attn_output", "unused"))
        else:
            h = latent_attention(p, b, h, i, widths, None, widths.key**-0.5, q_scale="unused")
            x = b.add(*join(p, b, x, h, i, "attn_output"))
        x = b.add(x, feed(p, b, i, style, experts)(norm(p, b, x, f"blk.{i}.ffn_norm")))
    return head(p, b, x)


def _delta(p: Params, b: ProgramBuilder, x: Value, i: int) -> Value:
    blk, head_dim = f"blk.{i}.ssm", p.integer("kda.head_dim")
    g = b.matmul(b.matmul(x, f"{blk}_f_a", head_dim), f"{blk}_f_b", inner(p))
    gate = b.matmul(b.matmul(x, f"{blk}_g_a", head_dim), f"{blk}_g_b", inner(p))
    return delta_attention(p, b, x, i, g, gate)
