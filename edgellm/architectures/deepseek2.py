"""DeepSeek 2, 3 and R1, Kimi K2, GLM 4.7 Flash, Mistral 4: latent attention, and experts after the first layers."""

from edgellm.architectures.blocks import Style, attended, embed, head, layers, norm
from edgellm.architectures.mla import (
    Latent,
    absorbed,
    latent_attention,
    latent_rope,
    latent_scale,
    refuse_long_contexts,
)
from edgellm.architectures.moe import experts_of, feed
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.program import ProgramBuilder, Value

GLM_4_7_FLASH = (47, 154880)
"""Layers and tokens of the model whose router is a sigmoid though its file does not say so."""


@register("deepseek2", "mistral4", experts=True)
def deepseek2(p: Params, b: ProgramBuilder) -> Value:
    """Where the rotation is stretched, so are the scores."""
    widths = Latent.of(p)
    rope = latent_rope(p, widths, widths.rank if absorbed(b, 0) else widths.still)
    scale = latent_scale(p, widths)
    growth = p.number("attention.temperature_scale", 0.0)
    sharpen = (growth, p.integer("attention.temperature_length"), 0) if growth else None
    flash = (p.depth, p.n_vocab) == GLM_4_7_FLASH or p.architecture == "glm-dsa"
    scaled = p.architecture in ("deepseek32", "glm-dsa")
    style = Style(out_bias=False, ffn_scale="product" if scaled else "unused")
    experts = experts_of(p, "sigmoid" if flash else "softmax", use_scale=scaled)
    x = embed(p, b)
    for i in layers(p, b):
        h = norm(p, b, x, f"blk.{i}.attn_norm")
        h = latent_attention(p, b, h, i, widths, rope, scale, sharpen)
        x = b.add(*attended(p, b, x, h, i, style))
        x = b.add(x, feed(p, b, i, style, experts)(norm(p, b, x, f"blk.{i}.ffn_norm")))
    return head(p, b, x)


@register("deepseek32", "glm-dsa", experts=True)
def deepseek32(p: Params, b: ProgramBuilder) -> Value:
    """DeepSeek 3.2 and GLM 5: an indexer chooses the keys to attend to; short contexts have too few to choose from."""
    refuse_long_contexts(p)
    b.ignore("blk.*.indexer.*")
    return deepseek2(p, b)
