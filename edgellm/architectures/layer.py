"""Whole layers: attention and a feed-forward network, one after the other or side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from edgellm.architectures.attention import attended, attention
from edgellm.architectures.ends import norm
from edgellm.architectures.params import Params
from edgellm.architectures.style import PLAIN, Style
from edgellm.program import ProgramBuilder, RopeSpec, Value
from edgellm.program.ops import Activation

Feed = Callable[[Value], Value]
"""A feed-forward network: what it reads, normalised already → what it adds to the residual stream."""


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
        h = meet(b, gate, up, style, style.limit, style.offset)
    elif style.gated:
        h = meet(b, product(x, "gate", n_ff), product(x, "up", n_ff), style, style.limit, style.offset)
    else:
        h = b.activate(product(x, "up", n_ff), style.activation)
        divisors = f"blk.{i}.ffn.act.scales"
        h = b.scale(h, weight=divisors, inverse=True) if b.has(divisors) else h
    return product(h, "down", p.n_embd)


class Gate(Protocol):
    """How gate and upward product meet: see `Style`."""

    @property
    def activation(self) -> Activation:
        """Of the gate."""

    @property
    def situ(self) -> tuple[float, float]:
        """Bounds by tanh."""


def meet(b: ProgramBuilder, gate: Value, up: Value, how: Gate, limit: float = 0.0, offset: float = 0.0) -> Value:
    """Return the product of a gate and what it gates."""
    if how.situ[0]:
        return b.mul(b.glu(gate, b.softcap(gate, how.situ[0]), "sigmoid"), b.softcap(up, how.situ[1]))
    return b.glu(gate, up, how.activation, limit, offset)


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
