"""Decoders whose scores fall with distance: BLOOM, MPT, Jais, Baichuan."""

from edgellm.architectures.blocks import Style, embed, head, layer, layers, norm
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, Value


@register("bloom")
def bloom(p: Params, b: ProgramBuilder) -> Value:
    """BLOOM also normalises its embedding."""
    style = Style(layer_norm=True, gated=False, activation="gelu", alibi=8.0)
    x = norm(p, b, embed(p, b), "token_embd_norm", style)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=None, style=style)
    return head(p, b, x, style=style)


@register("mpt")
def mpt(p: Params, b: ProgramBuilder) -> Value:
    """MPT may learn positions instead, bound what attention reads, and divide its activations by a vector."""
    learned = b.has("position_embd.weight")
    style = Style(
        layer_norm=True,
        row_norms=b.has("blk.0.attn_q_norm.weight"),
        clamp=p.number("attention.clamp_kqv", 0.0) or None,
        gated=False,
        activation="gelu",
        alibi=p.number("attention.max_alibi_bias", 0.0),
        movable=not learned,
    )
    if not style.row_norms:
        b.ignore("blk.*.attn_k_norm.*")
    x = embed(p, b)
    if learned:
        x = b.add(x, b.embed_positions("position_embd.weight", p.n_embd, p.n_ctx_train))
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=None, style=style)
    return head(p, b, x, style=style)


@register("jais")
def jais(p: Params, b: ProgramBuilder) -> Value:
    """Jais: scores divided by the width of a head, not its root."""
    alibi = p.number("attention.max_alibi_bias", 0.0)
    style = Style(layer_norm=True, scale=1.0 / p.head_dim, alibi=alibi)
    x = embed(p, b)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=None, style=style)
    return head(p, b, x, style=style)


LAYERS_7B, LAYERS_13B = 32, 40
"""Of the two Baichuan models one turns and the other slopes, and no key tells."""


@register("baichuan")
def baichuan(p: Params, b: ProgramBuilder) -> Value:
    """The 7B model is Llama."""
    rope = rope_spec(p, "norm") if p.n_layer == LAYERS_7B else None
    style = Style(alibi=8.0 if p.n_layer == LAYERS_13B else 0.0, out_bias=False)
    x = embed(p, b)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=rope, style=style)
    return head(p, b, x)
