"""Snowflake Arctic: experts beside a whole dense decoder."""

from edgellm.architectures.blocks import Style, attended, attention, embed, ffn, head, layers, norm
from edgellm.architectures.moe import Experts, mixture
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, Value


@register("arctic", experts=True)
def arctic(p: Params, b: ProgramBuilder) -> Value:
    """The experts read the stream before attention.  The dense feed-forward is as wide as the stream."""
    rope, style, experts = rope_spec(p, "norm"), Style(out_bias=False), Experts()
    x = embed(p, b)
    for i in layers(p, b):
        h = attention(p, b, norm(p, b, x, f"blk.{i}.attn_norm"), i, style, rope, None)
        before, h = attended(p, b, x, h, i, style)
        x = b.add(before, h)
        x = b.add(x, ffn(p, b, norm(p, b, x, f"blk.{i}.ffn_norm"), i, style, n_ff=p.n_embd))
        x = b.add(x, mixture(p, b, norm(p, b, before, f"blk.{i}.ffn_norm_exps"), i, experts))
    return head(p, b, x)
