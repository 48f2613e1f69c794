"""Granite 4 hybrid: Mamba 2 layers and some that attend, with Granite's multipliers."""

from edgellm.architectures.blocks import PLAIN, attention, embed, head, layers, norm
from edgellm.architectures.mixers import Ssm, is_recurrent, join, mamba2
from edgellm.architectures.moe import Experts, feed
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, Value


@register("granitehybrid", experts=True)
def granitehybrid(p: Params, b: ProgramBuilder) -> Value:
    """Many published models know no positions, and say so in the key about the finetuning of their rope."""
    p.allow_layers_without_heads()
    rope = rope_spec(p, "norm", factors="rope_freqs.weight") if p.flag("rope.scaling.finetuned", True) else None
    if rope is None:
        b.ignore("rope_freqs.weight")
    ssm, residual, experts = Ssm.of(p), p.number("residual_scale", 0.0) or 1.0, Experts()
    x = b.scale(embed(p, b), p.number("embedding_scale", 0.0) or 1.0)
    for i in layers(p, b):
        h = norm(p, b, x, f"blk.{i}.attn_norm")
        if is_recurrent(p, i):
            x, h = join(p, b, x, mamba2(p, b, h, i, ssm), i, "ssm_out")
        else:
            x, h = join(p, b, x, attention(p, b, h, i, PLAIN, rope, None), i, "attn_output")
        x = b.add(x, b.scale(h, residual))
        h = feed(p, b, i, PLAIN, experts)(norm(p, b, x, f"blk.{i}.ffn_norm"))
        x = b.add(x, b.scale(h, residual))
    return head(p, b, x, scale=1.0 / (p.number("logit_scale", 0.0) or 1.0))
