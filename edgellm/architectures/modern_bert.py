"""Encoders that are normalised before: ModernBERT and EmbeddingGemma.  Windows reach to both sides."""

from edgellm.architectures.blocks import Style, attended, attention, embed, ffn, layer, layers, norm
from edgellm.architectures.encoders import vectors
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import global_base, local_rope_spec, rope_spec
from edgellm.program import ProgramBuilder, Value


@register("modern-bert", causal=False)
def modern_bert(p: Params, b: ProgramBuilder) -> Value:
    """ModernBERT: the first layer has no norm before attention, and every third sees everything."""
    everywhere, near = rope_spec(p, "neox"), local_rope_spec(p, "neox", global_base(p), scaled=True)
    windows = p.windows(period=3, first=True)
    causal = p.flag("attention.causal", False)
    style = Style(layer_norm=True, fused=True, activation="gelu", causal=causal)
    x = norm(p, b, embed(p, b), "token_embd_norm", style)
    for i in layers(p, b):
        stem, rope = f"blk.{i}.attn_norm", near if windows[i] else everywhere
        h = norm(p, b, x, stem, style) if b.has(f"{stem}.weight") else x
        x = b.add(*attended(p, b, x, attention(p, b, h, i, style, rope, windows[i]), i, style))
        x = b.add(x, ffn(p, b, norm(p, b, x, f"blk.{i}.ffn_norm", style), i, style))
    return vectors(p, b, norm(p, b, x, "output_norm", style), style, "gelu")


@register("gemma-embedding", causal=False)
def gemma_embedding(p: Params, b: ProgramBuilder) -> Value:
    """EmbeddingGemma: Gemma 3 that sees both sides, and two matrices behind, of which the mean may be taken later."""
    everywhere, near = rope_spec(p, "neox"), local_rope_spec(p, "neox", 10000.0)
    windows = p.windows(period=6)
    style = Style(head_norms=True, activation="gelu", post_norms=True, causal=False)
    x = b.scale(embed(p, b), p.n_embd**0.5)
    for i in layers(p, b):
        rope = near if windows[i] else everywhere
        x = layer(p, b, x, i, rope=rope, window=windows[i], style=style)
    x = norm(p, b, x, "output_norm")
    for name in ("dense_2", "dense_3"):
        width = b.tensors.get(f"{name}.weight", ())[1:]
        x = b.matmul(x, name, width[0]) if width else x
    return vectors(p, b, x, style)
