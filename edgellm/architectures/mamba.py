"""Mamba 1 and 2: nothing but state space layers."""

from edgellm.architectures.blocks import embed, head, layers, norm
from edgellm.architectures.mixers import Ssm, join, mamba1, mamba2
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.program import ProgramBuilder, Value


@register("mamba")
def mamba(p: Params, b: ProgramBuilder) -> Value:
    """Also Falcon Mamba, which normalises what the scan is steered by."""
    ssm = Ssm.of(p, n_group=1)
    x = embed(p, b)
    for i in layers(p, b):
        h = mamba1(p, b, norm(p, b, x, f"blk.{i}.attn_norm"), i, ssm)
        x = b.add(*join(p, b, x, h, i, "ssm_out"))
    return head(p, b, x)


@register("mamba2")
def mamba_2(p: Params, b: ProgramBuilder) -> Value:
    """Heads share their decay, and groups of heads share what the scan is steered by."""
    ssm = Ssm.of(p)
    x = embed(p, b)
    for i in layers(p, b):
        h = mamba2(p, b, norm(p, b, x, f"blk.{i}.attn_norm"), i, ssm)
        x = b.add(*join(p, b, x, h, i, "ssm_out"))
    return head(p, b, x)
