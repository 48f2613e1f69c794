"""What decoders are made of, shared by the families."""

from __future__ import annotations

from dataclasses import dataclass

from edgellm.architectures.params import Params
from edgellm.program import KVState, ProgramBuilder, RopeSpec, Value
from edgellm.program.ops import Activation, ScaleUse


@dataclass(frozen=True, slots=True)
class Style:
    """How the layers of one model differ from plain ones."""

    head_norms: bool = False
    """Normalise every query and key head."""
    scale: float | None = None
    """Factor of the scores where it is not one over the root of the head's width."""
    softcap: float | None = None
    """Bound of the scores."""
    sharpen: tuple[float, int] | None = None
    """Factor and period by which queries grow with their position."""
    activation: Activation = "silu"
    ffn_scale: ScaleUse = "unused"
    """The part of the feed-forward's scale tensors.  ggml, which defined them, applies them in some families only."""
    post_norms: bool = False
    """Normalise what attention and feed-forward add to the residual stream, too."""


PLAIN = Style()


def embed(p: Params, b: ProgramBuilder) -> Value:
    """Return each row's token embedding.  Also accepts the activation scales no CPU needs."""
    b.ignore("*.input_scale")
    return b.embed("token_embd.weight", p.n_embd, p.n_vocab)


def head(p: Params, b: ProgramBuilder, x: Value, softcap: float | None = None) -> Value:
    """Return the logits; the output matrix is the embedding's where the file has no own."""
    x = b.rms_norm(x, "output_norm.weight", p.eps)
    weight = "output.weight" if b.has("output.weight") else "token_embd.weight"
    return b.softcap(b.matmul(x, "output", p.n_vocab, weight=weight), softcap)


def attention(
    p: Params, b: ProgramBuilder, x: Value, i: int, style: Style, rope: RopeSpec | None, window: int | None
) -> Value:
    """Return layer `i`'s attention, one head beside the other, before the output matrix."""
    n_head, n_head_kv = p.n_head[i], p.n_head_kv[i]
    q = b.matmul(x, f"blk.{i}.attn_q", n_head * p.head_dim)
    k = b.matmul(x, f"blk.{i}.attn_k", n_head_kv * p.head_dim)
    v = b.matmul(x, f"blk.{i}.attn_v", n_head_kv * p.head_dim_v)
    if style.head_norms:
        q = b.rms_norm(q, f"blk.{i}.attn_q_norm.weight", p.eps, p.head_dim)
        k = b.rms_norm(k, f"blk.{i}.attn_k_norm.weight", p.eps, p.head_dim)
    if rope is not None:
        q, k = b.rope(q, p.head_dim, rope), b.rope(k, p.head_dim, rope)
    if style.sharpen is not None:
        q = b.position_scale(q, *style.sharpen)
    state = KVState(f"blk.{i}.kv", n_head_kv, p.head_dim, p.head_dim_v, window, rope)
    return b.attention(q, k, v, state, n_head, style.scale or p.attention_scale(), style.softcap)


def ffn(p: Params, b: ProgramBuilder, x: Value, i: int, style: Style) -> Value:
    """Return layer `i`'s gated feed-forward network."""
    if style.ffn_scale == "unused":
        b.ignore("blk.*.ffn_*.scale")
    gate = b.matmul(x, f"blk.{i}.ffn_gate", p.n_ff[i], scale_use=style.ffn_scale)
    up = b.matmul(x, f"blk.{i}.ffn_up", p.n_ff[i], scale_use=style.ffn_scale)
    h = b.glu(gate, up, style.activation)
    return b.matmul(h, f"blk.{i}.ffn_down", p.n_embd, scale_use=style.ffn_scale)


def layer(
    p: Params,
    b: ProgramBuilder,
    x: Value,
    i: int,
    *,
    rope: RopeSpec | None,
    window: int | None = None,
    style: Style = PLAIN,
) -> Value:
    """Return the residual stream after layer `i`: attention and feed-forward, each normalised before."""
    h = attention(p, b, b.rms_norm(x, f"blk.{i}.attn_norm.weight", p.eps), i, style, rope, window)
    if i == p.n_layer - 1:
        h, x = b.select_rows(h), b.select_rows(x)
    h = b.matmul(h, f"blk.{i}.attn_output", p.n_embd)
    if style.post_norms:
        h = b.rms_norm(h, f"blk.{i}.post_attention_norm.weight", p.eps)
    x = b.add(x, h)
    h = ffn(p, b, b.rms_norm(x, f"blk.{i}.ffn_norm.weight", p.eps), i, style)
    if style.post_norms:
        h = b.rms_norm(h, f"blk.{i}.post_ffw_norm.weight", p.eps)
    return b.add(x, h)
