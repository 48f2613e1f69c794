"""Qwen 3.5 and Qwen 3 Next: three layers with the gated delta rule to one with gated attention."""

from edgellm.architectures.blocks import Style, embed, head, layers, norm
from edgellm.architectures.mixers import Ssm, delta_layers, delta_net, gated_attention, join
from edgellm.architectures.moe import Experts, feed
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, Value
from edgellm.program.ops import ScaleUse


@register("qwen35", "qwen35moe", "qwen3next", experts=True)
def qwen35(p: Params, b: ProgramBuilder) -> Value:
    """Dense, mixtures, and the older Next, whose heads lie in another order.  Text turns all axes alike."""
    rope, ssm, recurrent = rope_spec(p, "neox"), Ssm.of(p), delta_layers(p)
    style = Style(ffn_scale="product")
    experts = Experts(scale=p.number("expert_weights_scale", 0.0) or 1.0, use_scale=True)
    scale_use: ScaleUse = "unused" if p.architecture == "qwen3next" else "product"
    x = embed(p, b)
    for i in layers(p, b):
        h = norm(p, b, x, f"blk.{i}.attn_norm")
        if recurrent[i]:
            x = b.add(*join(p, b, x, delta_net(p, b, h, i, ssm, scale_use), i, "ssm_out", scale_use))
        else:
            x = b.add(*join(p, b, x, gated_attention(p, b, h, i, rope), i, "attn_output"))
        x = b.add(x, feed(p, b, i, style, experts)(norm(p, b, x, f"blk.{i}.post_attention_norm")))
    return head(p, b, x)
