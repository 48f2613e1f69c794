"""BERT and its kin: encoders whose layers are normalised behind."""

from edgellm.architectures.blocks import Style, embed, layers, norm
from edgellm.architectures.encoders import encoder_layer, vectors
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, RopeSpec, Value


@register("bert", causal=False)
def bert(p: Params, b: ProgramBuilder) -> Value:
    """BERT, RoBERTa and XLM-R: learned positions."""
    causal = p.flag("attention.causal", False)
    style = Style(layer_norm=True, gated=False, activation="gelu", causal=causal, movable=False)
    positions = b.embed_positions("position_embd.weight", p.n_embd, p.n_ctx_train)
    return _encoder(p, b, b.add(_first_type(p, b), positions), None, style)


@register("nomic-bert", causal=False)
def nomic_bert(p: Params, b: ProgramBuilder) -> Value:
    """Nomic Embed: a rotation, and a gate of SiLU."""
    p.refuse_other("moe_every_n_layers")
    style = Style(layer_norm=True, causal=p.flag("attention.causal", False))
    return _encoder(p, b, _first_type(p, b), rope_spec(p, "neox"), style)


@register("jina-bert-v2", causal=False)
def jina_bert_v2(p: Params, b: ProgramBuilder) -> Value:
    """Jina Embeddings 2: scores fall with distance to both sides; gate and upward matrix may be one."""
    up = b.tensors.get("blk.0.ffn_up.weight", ())[1:]
    style = Style(
        layer_norm=True,
        row_norms=b.has("blk.0.attn_q_norm.weight"),
        alibi=p.number("attention.max_alibi_bias", 8.0),
        gated=b.has("blk.0.ffn_gate.weight"),
        fused=not b.has("blk.0.ffn_gate.weight") and up != (p.n_ff[0],),
        activation="gelu",
        causal=p.flag("attention.causal", False),
    )
    return _encoder(p, b, _first_type(p, b), None, style)


def _first_type(p: Params, b: ProgramBuilder) -> Value:
    """Return each token's embedding, and that of the first type of token where there are types."""
    x, types = embed(p, b), b.tensors.get("token_types.weight", ())[1:]
    return b.add(x, b.embed_first("token_types.weight", p.n_embd, types[0])) if types else x


def _encoder(p: Params, b: ProgramBuilder, x: Value, rope: RopeSpec | None, style: Style) -> Value:
    x = norm(p, b, x, "token_embd_norm", style)
    for i in layers(p, b):
        x = encoder_layer(p, b, x, i, rope, style)
    return vectors(p, b, x, style)
