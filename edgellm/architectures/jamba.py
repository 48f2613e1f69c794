"""Jamba: some layers attend without knowing positions, the others are Mamba 1; every other one is a mixture."""

from edgellm.architectures.blocks import PLAIN, attention, embed, head, layers, norm
from edgellm.architectures.mixers import Ssm, is_recurrent, join, mamba1
from edgellm.architectures.moe import Experts, feed
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.program import ProgramBuilder, Value


@register("jamba", experts=True)
def jamba(p: Params, b: ProgramBuilder) -> Value:
    """Layers with 0 key heads are Mamba."""
    p.allow_layers_without_heads()
    ssm = Ssm.of(p, n_group=1)
    experts = Experts(normalised=False, scale=p.number("expert_weights_scale", 0.0) or 1.0)
    x = embed(p, b)
    for i in layers(p, b):
        h = norm(p, b, x, f"blk.{i}.attn_norm")
        if is_recurrent(p, i):
            x = b.add(*join(p, b, x, mamba1(p, b, h, i, ssm), i, "ssm_out"))
        else:
            x = b.add(*join(p, b, x, attention(p, b, h, i, PLAIN, None, None), i, "attn_output"))
        x = b.add(x, feed(p, b, i, PLAIN, experts)(norm(p, b, x, f"blk.{i}.ffn_norm")))
    return head(p, b, x)
