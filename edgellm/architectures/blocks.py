"""What decoders are made of, shared by the families."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgellm.architectures.params import Params
from edgellm.program import KVState, ProgramBuilder, RopeSpec, Value
from edgellm.program.ops import Activation, ScaleUse

Feed = Callable[[Value], Value]
"""A feed-forward network: what it reads, normalised already → what it adds to the residual stream."""


@dataclass(frozen=True, slots=True)
class Style:
    """How the layers of one model differ from plain ones."""

    layer_norm: bool = False
    """Layer norms, with biases where the file has them, in the place of RMS norms."""
    rms_bias: bool = False
    """RMS norms that have biases all the same."""
    eps: float | None = None
    """Epsilon of the RMS norms where it is not the file's."""
    norm_weights: bool = True
    """False where norms have no weights."""
    head_norms: bool = False
    """Normalise every query and key head."""
    row_norms: bool = False
    """Normalise all query heads together, and all key heads."""
    unit_norms: bool = False
    """Normalise every query and key head without weights; a vector may scale the query heads."""
    norm_after_rope: bool = False
    """Normalise queries and keys after their rotation instead of before."""
    bare: bool = False
    """Scales and biases of the projections to queries, keys and values play no part."""
    clamp: float | None = None
    """Bound of queries, keys and values."""
    scale: float | None = None
    """Factor of the scores where it is not one over the root of the head's width."""
    softcap: float | None = None
    """Bound of the scores."""
    sharpen: tuple[float, int, int] | None = None
    """Factor, period and offset by which queries grow with their position."""
    chunked: bool = False
    """Windows begin anew at every multiple of their size."""
    sinks: bool = False
    """Every head has a score of its own that takes part in the softmax."""
    alibi: float = 0.0
    """Exponent of the slopes by which scores fall with distance."""
    movable: bool = True
    """False where positions enter the residual stream."""
    gate: Activation | None = None
    """Gate the attention's output with this activation of a projection of its input."""
    values: float = 1.0
    """Factor of what attention adds to the residual stream."""
    out_bias: bool = True
    """False where a bias of the output matrix plays no part."""
    activation: Activation = "silu"
    gated: bool = True
    """The feed-forward network has a gate beside its upward matrix."""
    fused: bool = False
    """Gate and upward matrix are one tensor, the gate first."""
    ffn_bias: bool = True
    """False where biases of the feed-forward matrices play no part."""
    ffn_scale: ScaleUse = "unused"
    """The part of the feed-forward's scale tensors.  ggml, which defined them, applies them in some families only."""
    down_scale: ScaleUse | None = None
    """The same for the downward matrix alone."""
    pre_norms: bool = True
    """Normalise what attention and feed-forward read."""
    post_norms: bool = False
    """Normalise what attention and feed-forward add to the residual stream, too."""
    post_eps: float | None = None
    """Epsilon of these norms where it is not that of the others."""
    ffn_norm: str = "ffn_norm"
    """Name of the norm before the feed-forward network."""
    attn_post_norm: str = "post_attention_norm"
    ffn_post_norm: str = "post_ffw_norm"
    head_bias: bool = True
    """False where a bias of the logits plays no part."""
    residual: float = 1.0
    """Factor of what is added to the residual stream."""


PLAIN = Style()


def layers(p: Params, b: ProgramBuilder) -> range:
    """Return the layers that make the logits.  Accepts the tensors of those that predict further tokens."""
    b.ignore(*(f"blk.{i}.*" for i in range(p.depth, p.n_layer)))
    return range(p.depth)


def ignore_dense(b: ProgramBuilder, i: int) -> None:
    """Accept a dense feed-forward network beside layer `i`'s experts, if it has any: it plays no part."""
    if b.has(f"blk.{i}.ffn_gate_inp.weight"):
        b.ignore(f"blk.{i}.ffn_gate.*", f"blk.{i}.ffn_up.*", f"blk.{i}.ffn_down.*")


def embed(p: Params, b: ProgramBuilder) -> Value:
    """Return each row's token embedding.  Also accepts the activation scales no CPU needs."""
    b.ignore("*.input_scale")
    return b.embed("token_embd.weight", p.n_embd, p.n_vocab)


def norm(
    p: Params, b: ProgramBuilder, x: Value, stem: str | None, style: Style = PLAIN, eps: float | None = None
) -> Value:
    """Normalise each row with the weights of `stem`, if any."""
    stem = stem if style.norm_weights else None
    if style.layer_norm:
        return b.layer_norm(x, stem, p.eps_layer if eps is None else eps)
    eps = eps if eps is not None else p.eps if style.eps is None else style.eps
    if style.rms_bias:
        return b.layer_norm(x, stem, eps, centred=False)
    return b.rms_norm(x, stem if stem is None or b.has(stem) else f"{stem}.weight", eps)


def head(
    p: Params,
    b: ProgramBuilder,
    x: Value,
    softcap: float | None = None,
    *,
    norm: str | None = "output_norm",
    style: Style = PLAIN,
    eps: float | None = None,
    scale: float = 1.0,
) -> Value:
    """Return the logits; the output matrix is the embedding's where the file has no own."""
    x = _norm(p, b, x, norm, style, eps)
    weight = "output.weight" if b.has("output.weight") else "token_embd.weight"
    if not style.head_bias:
        b.ignore("output.bias")
    logits = b.matmul(x, "output", p.n_vocab, weight=weight, use_bias=style.head_bias)
    return b.softcap(b.scale(logits, scale), softcap)


_norm = norm
"""`norm` for functions that have a parameter of this name."""


def project(p: Params, b: ProgramBuilder, x: Value, i: int, style: Style = PLAIN) -> tuple[Value, Value, Value]:
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
    q, k, v = (b.matmul(x, s, n, scale_use=use, use_bias=not style.bare, rows=rows) for s, n, rows in parts)
    return q, k, v


def attention(
    p: Params, b: ProgramBuilder, x: Value, i: int, style: Style, rope: RopeSpec | None, window: int | None
) -> Value:
    """Return layer `i`'s attention, one head beside the other, before the output matrix."""
    n_head, n_head_kv = p.n_head[i], p.n_head_kv[i]
    q, k, v = (b.softcap(value, style.clamp, hard=True) for value in project(p, b, x, i, style))
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
    state = KVState(f"blk.{i}.kv", n_head_kv, p.head_dim, p.head_dim_v, window, turned, chunked, movable)
    sinks = f"blk.{i}.attn_sinks.weight" if style.sinks and b.has(f"blk.{i}.attn_sinks.weight") else None
    scale = style.scale or p.attention_scale()
    y = b.attention(q, k, v, state, n_head, scale, style.softcap, sinks=sinks, alibi=style.alibi)
    return y if style.gate is None else gated(b, x, y, i, n_head, style.gate)


def gated(b: ProgramBuilder, x: Value, y: Value, i: int, n_head: int, activation: Activation) -> Value:
    """Gate layer `i`'s attention by a projection of its input, value by value or head by head."""
    stem = f"blk.{i}.attn_gate"
    b.ignore("blk.*.attn_gate.scale")
    by_head = b.tensors.get(f"{stem}.weight", ())[1:] == (n_head,)
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


def ffn(
    p: Params, b: ProgramBuilder, x: Value, i: int, style: Style, *, suffix: str = "", n_ff: int | None = None
) -> Value:
    """Return layer `i`'s feed-forward network, or the one whose tensors' names end in `suffix`."""
    if style.ffn_scale == "unused":
        b.ignore("blk.*.ffn_*.scale")
    if not style.ffn_bias:
        b.ignore("blk.*.ffn_*.bias")
    n_ff = p.n_ff[i] if n_ff is None else n_ff

    def product(value: Value, name: str, n_out: int, rows: tuple[int, int] | None = None) -> Value:
        use = style.down_scale if style.down_scale and name == "down" else style.ffn_scale
        stem = f"blk.{i}.ffn_{name}{suffix}"
        return b.matmul(value, stem, n_out, scale_use=use, use_bias=style.ffn_bias, rows=rows)

    if style.fused:
        gate, up = product(x, "up", n_ff, (0, 2 * n_ff)), product(x, "up", n_ff, (n_ff, 2 * n_ff))
        h = b.glu(gate, up, style.activation)
    elif style.gated:
        h = b.glu(product(x, "gate", n_ff), product(x, "up", n_ff), style.activation)
    else:
        h = b.activate(product(x, "up", n_ff), style.activation)
        divisors = f"blk.{i}.ffn.act.scales"
        h = b.scale(h, weight=divisors, inverse=True) if b.has(divisors) else h
    return product(h, "down", p.n_embd)


def layer(
    p: Params,
    b: ProgramBuilder,
    x: Value,
    i: int,
    *,
    rope: RopeSpec | None,
    window: int | None = None,
    style: Style = PLAIN,
    feed: Feed | None = None,
) -> Value:
    """Return the residual stream after layer `i`: attention and feed-forward, each normalised before.

    `feed` stands in the place of the layer's feed-forward network.
    """
    h = norm(p, b, x, f"blk.{i}.attn_norm", style) if style.pre_norms else x
    x, h = attended(p, b, x, attention(p, b, h, i, style, rope, window), i, style)
    x = b.add(x, h)
    h = norm(p, b, x, f"blk.{i}.{style.ffn_norm}", style) if style.pre_norms else x
    h = ffn(p, b, h, i, style) if feed is None else feed(h)
    if style.post_norms:
        h = norm(p, b, h, f"blk.{i}.{style.ffn_post_norm}", style, style.post_eps)
    return b.add(x, b.scale(h, style.residual))


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


def parallel_layer(
    p: Params,
    b: ProgramBuilder,
    x: Value,
    i: int,
    *,
    rope: RopeSpec | None,
    window: int | None = None,
    style: Style = PLAIN,
    norms: tuple[str, str | None] = ("attn_norm", None),
    feed: Feed | None = None,
) -> Value:
    """Return the residual stream after layer `i`, whose attention and feed-forward read the same stream.

    `norms` are those before attention and before the feed-forward; without the second they share the first.
    """
    h = norm(p, b, x, f"blk.{i}.{norms[0]}", style)
    g = h if norms[1] is None else norm(p, b, x, f"blk.{i}.{norms[1]}", style)
    a = attention(p, b, h, i, style, rope, window)
    if i == p.depth - 1:
        g = b.select_rows(g)
    x, a = attended(p, b, x, a, i, style)
    g = ffn(p, b, g, i, style) if feed is None else feed(g)
    return b.add(b.add(g, x), a)
