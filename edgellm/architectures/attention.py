"""Attention as most families have it, from the normalised stream to what is added to it."""

from __future__ import annotations

from edgellm.architectures.ends import norm
from edgellm.architectures.params import Params
from edgellm.architectures.style import PLAIN, Style
from edgellm.program import KVState, ProgramBuilder, RopeSpec, Value
from edgellm.program.ops import Activation, ScaleUse


def project(
    p: Params, b: ProgramBuilder, x: Value, i: int, style: Style = PLAIN, run: int | None = None
) -> tuple[Value, Value, Value]:
    """Return layer `i`'s queries, keys and values, from one matrix or three."""
    use: ScaleUse = "unused" if style.bare else "product"
    if style.bare:
        b.ignore(*(f"blk.*.attn_{name}.{part}" for name in ("q", "k", "v", "qkv") for part in ("scale", "bias")))
    n_head, n_head_kv = p.n_head[i], p.n_head_kv[i]
    widths = (n_head * p.head_dim, n_head_kv * p.head_dim, n_head_kv * p.head_dim_v)
    stem = f"blk.{i}.attn_qkv"
    if b.has(f"{stem}.weight"):
        starts = (0, widths[0], widths[0] + widths[1])
        parts = [(stem, n, (at, sum(widths))) for at, n in zip(starts, widths, strict=True)]
    else:
        parts = [(f"blk.{i}.attn_{name}", n, (0, n)) for name, n in zip("qkv", widths, strict=True)]
    q, k, v = (
        b.matmul(x, s, n, scale_use=use, scale=scale_of(s, i, run), use_bias=not style.bare, rows=rows)
        for s, n, rows in parts
    )
    return q, k, v


def scale_of(stem: str, i: int, run: int | None) -> str | None:
    """Return the scale of a matrix of layer `i` in its `run`, if that is not its own."""
    return None if run is None else f"{stem.replace(f'blk.{i}.', f'blk.{run}.')}.scale"


def attention(
    p: Params,
    b: ProgramBuilder,
    x: Value,
    i: int,
    style: Style,
    rope: RopeSpec | None,
    window: int | None,
    *,
    run: int | None = None,
) -> Value:
    """Return layer `i`'s attention, one head beside the other, before the output matrix.

    `run` is the number of its keys, values and scales where it is not the layer's: one that runs several times.
    """
    n_head, n_head_kv = p.n_head[i], p.n_head_kv[i]
    q, k, v = (b.softcap(value, style.clamp, hard=True) for value in project(p, b, x, i, style, run))
    if not style.norm_after_rope:
        q, k = _normed(p, b, q, k, i, style)
    if rope is not None:
        q, k = b.rope(q, p.head_dim, rope), b.rope(k, p.head_dim, rope)
    if style.norm_after_rope:
        q, k = _normed(p, b, q, k, i, style)
    if style.sharpen is not None:
        q = b.position_scale(q, *style.sharpen)
    turned = None if style.norm_after_rope else rope
    movable = style.movable and not (style.norm_after_rope and rope is not None)
    chunked = style.chunked and window is not None
    name = f"blk.{i if run is None else run}.kv"
    kv = KVState(name, n_head_kv, p.head_dim, p.head_dim_v, window, turned, chunked, movable, style.causal)
    sinks = f"blk.{i}.attn_sinks.weight" if style.sinks and b.has(f"blk.{i}.attn_sinks.weight") else None
    scale = style.scale or p.attention_scale()
    y = b.attention(q, k, v, kv, n_head, scale, style.softcap, sinks=sinks, alibi=style.alibi)
    return y if style.gate is None else gated(b, x, y, i, n_head, style.gate)


def attended(p: Params, b: ProgramBuilder, x: Value, h: Value, i: int, style: Style) -> tuple[Value, Value]:
    """Return the residual stream and what attention adds to it; in the last layer only of the wanted rows."""
    if i == p.depth - 1:
        h, x = b.select_rows(h), b.select_rows(x)
    if not style.out_bias:
        b.ignore("blk.*.attn_output.bias")
    h = b.matmul(h, f"blk.{i}.attn_output", p.n_embd, use_bias=style.out_bias)
    if style.post_norms:
        h = norm(p, b, h, f"blk.{i}.{style.attn_post_norm}", style, style.post_eps)
    return x, b.scale(h, style.residual * style.values)


def gated(b: ProgramBuilder, x: Value, y: Value, i: int, n_head: int, activation: Activation) -> Value:
    """Gate layer `i`'s attention by a projection of its input, value by value or head by head."""
    stem = f"blk.{i}.attn_gate"
    b.ignore("blk.*.attn_gate.scale")
    rows = (*b.tensors.get(f"{stem}.weight", ()), 1)[1]  # a single one may go without saying
    by_head = rows == n_head
    return b.glu(b.matmul(x, stem, n_head if by_head else y.width, scale_use="unused"), y, activation)


def _normed(p: Params, b: ProgramBuilder, q: Value, k: Value, i: int, style: Style) -> tuple[Value, Value]:
    if style.unit_norms:
        q, k = b.rms_norm(q, None, p.eps, p.head_dim), b.rms_norm(k, None, p.eps, p.head_dim)
        factors = f"blk.{i}.attn_q_norm.weight"
        return b.scale(q, weight=factors if b.has(factors) else None), k
    if not (style.head_norms or style.row_norms):
        return q, k
    stems = (f"blk.{i}.attn_q_norm", f"blk.{i}.attn_k_norm")
    sizes = (q.width, k.width) if style.row_norms else (p.head_dim, p.head_dim)
    if style.layer_norm:
        return b.layer_norm(q, stems[0], p.eps_layer, sizes[0]), b.layer_norm(k, stems[1], p.eps_layer, sizes[1])
    return b.rms_norm(q, f"{stems[0]}.weight", p.eps, sizes[0]), b.rms_norm(k, f"{stems[1]}.weight", p.eps, sizes[1])
