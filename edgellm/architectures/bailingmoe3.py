"""Ling 3: layers with a delta rule that decays key by key within bounds, and some with gated latent attention."""

from edgellm.architectures.blocks import Style, embed, gated, head, layers, norm
from edgellm.architectures.kda import bounded_decays, delta_attention, inner
from edgellm.architectures.mixers import is_recurrent, join
from edgellm.architectures.mla import Latent, latent_attention
from edgellm.architectures.moe import Experts, experts_of, feed
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, Value


@register("bailingmoe3", experts=True)
def bailingmoe3(p: Params, b: ProgramBuilder) -> Value:
    """Layers with 0 key heads are recurrent; all of them have the heads of the others."""
    p.allow_layers_without_heads()
    p.refuse_other("kda.safe_gate", True)
    b.ignore("blk.*.scale", "blk.*.attn_*.bias")
    widths, style, read = Latent.of(p), Style(), experts_of(p, "sigmoid")
    rope = rope_spec(p, "neox", n_rot=widths.n_rot, offset=widths.rank)
    experts = Experts(read.scoring, read.normalised, read.scale, limits=p.numbers_per_layer("swiglu_clamp_exp"))
    x = embed(p, b)
    for i in layers(p, b):
        h = norm(p, b, x, f"blk.{i}.attn_norm")
        if is_recurrent(p, i):
            g = bounded_decays(p, b, b.matmul(h, f"blk.{i}.ssm_f_a", inner(p)), i, 1.0)
            y = delta_attention(p, b, h, i, g, b.matmul(h, f"blk.{i}.ssm_g_a", inner(p)), decays=True)
        else:
            y = latent_attention(p, b, h, i, widths, rope, widths.key**-0.5, q_scale="unused")
            y = gated(b, h, y, i, p.n_head[i], "sigmoid")
        x = b.add(*join(p, b, x, y, i, "attn_output", "unused"))
        x = b.add(x, feed(p, b, i, style, experts)(norm(p, b, x, f"blk.{i}.ffn_norm")))
    return head(p, b, x)
