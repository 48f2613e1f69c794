"""Falcon-H1: attention and Mamba 2 side by side in every layer."""

from edgellm.architectures.blocks import PLAIN, attention, embed, ffn, head, layers, norm
from edgellm.architectures.mixers import Ssm, join, mamba2
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, Value


@register("falcon-h1")
def falcon_h1(p: Params, b: ProgramBuilder) -> Value:
    """The multipliers of the published models are folded into their weights."""
    b.ignore("rope_freqs.weight", "blk.*.attn_output.bias")
    rope, ssm = rope_spec(p, "neox"), Ssm.of(p)
    x = embed(p, b)
    for i in layers(p, b):
        h = norm(p, b, x, f"blk.{i}.attn_norm")
        attended = b.matmul(attention(p, b, h, i, PLAIN, rope, None), f"blk.{i}.attn_output", p.n_embd, use_bias=False)
        x = b.add(*join(p, b, b.add(x, attended), mamba2(p, b, h, i, ssm), i, "ssm_out"))
        x = b.add(x, ffn(p, b, norm(p, b, x, f"blk.{i}.ffn_norm"), i, PLAIN))
    return head(p, b, x)
