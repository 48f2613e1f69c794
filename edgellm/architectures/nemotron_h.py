"""Nemotron-H: every layer is one thing only, Mamba 2, attention without positions, or feed-forward."""

from edgellm.architectures.blocks import PLAIN, Style, attention, embed, ffn, head, layers
from edgellm.architectures.mixers import Ssm, is_recurrent, join, mamba2
from edgellm.architectures.moe import Experts, feed
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.program import ProgramBuilder, Value


@register("nemotron_h", "nemotron_h_moe", experts=True)
def nemotron_h(p: Params, b: ProgramBuilder) -> Value:
    """A layer with a feed-forward width is that, dense or a mixture, one without key heads is Mamba, others attend."""
    p.allow_layers_without_heads()
    p.refuse_other("moe_latent_size")
    eps = p.number("attention.layer_norm_rms_epsilon", p.metadata.get(p.key("attention.layer_norm_epsilon")))
    ssm, widths = Ssm.of(p), p.per_layer("feed_forward_length", minimum=0)
    style = Style(activation="relu2", gated=False, ffn_scale="sum")
    scale = p.number("expert_weights_scale", 0.0) or 1.0
    experts = Experts("sigmoid", p.flag("expert_weights_norm", False), scale, "relu2", use_scale=True)
    x = embed(p, b)
    for i in layers(p, b):
        h = b.rms_norm(x, f"blk.{i}.attn_norm.weight", eps)
        if widths[i]:
            if i == p.depth - 1:
                h, x = b.select_rows(h), b.select_rows(x)
            mixed = b.has(f"blk.{i}.ffn_gate_inp.weight")
            h = feed(p, b, i, style, experts)(h) if mixed else ffn(p, b, h, i, style, n_ff=widths[i])
        elif is_recurrent(p, i):
            x, h = join(p, b, x, mamba2(p, b, h, i, ssm, eps), i, "ssm_out")
        else:
            x, h = join(p, b, x, attention(p, b, h, i, PLAIN, None, None), i, "attn_output")
        x = b.add(x, h)
    return head(p, b, x, eps=eps)
