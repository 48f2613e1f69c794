"""MiniCPM: Llama with three multipliers; the third generation compresses keys and values."""

from edgellm.architectures.blocks import Style, attended, embed, ffn, head, layer, layers, norm
from edgellm.architectures.mla import Latent, latent_attention
from edgellm.architectures.moe import Experts, feed
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import long_or_short, rope_spec
from edgellm.program import ProgramBuilder, Value


@register("minicpm", experts=True)
def minicpm(p: Params, b: ProgramBuilder) -> Value:
    """The defaults are those of the published models, whose files leave the keys out."""
    rope = rope_spec(p, "norm", factors="rope_freqs.weight")
    style = Style(residual=p.number("residual_scale", 1.4 / p.n_layer**0.5) or 1.0)
    experts = Experts()
    x = b.scale(embed(p, b), p.number("embedding_scale", 12.0) or 1.0)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=rope, style=style, feed=feed(p, b, i, style, experts))
    return head(p, b, x, scale=1.0 / (p.number("logit_scale", 256.0 / p.n_embd) or 1.0))


@register("minicpm3")
def minicpm3(p: Params, b: ProgramBuilder) -> Value:
    """Its multipliers are constants."""
    widths = Latent.of(p)
    rope = rope_spec(p, "neox", factors=long_or_short(p, b), n_rot=widths.n_rot, offset=widths.still)
    style = Style(residual=1.4 / p.n_layer**0.5, out_bias=False)
    x = b.scale(embed(p, b), 12.0)
    for i in layers(p, b):
        h = latent_attention(p, b, norm(p, b, x, f"blk.{i}.attn_norm"), i, widths, rope, p.head_dim**-0.5)
        x = b.add(*attended(p, b, x, h, i, style))
        h = ffn(p, b, norm(p, b, x, f"blk.{i}.ffn_norm"), i, style)
        x = b.add(x, b.scale(h, style.residual))
    return head(p, b, x, scale=256.0 / p.n_embd)
