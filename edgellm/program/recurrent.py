"""Ops of layers that carry a state from token to token instead of keys and values.

Each looks across the rows of its own segment, from the first to the last, and leaves its state behind for the
next step.  A segment that starts at position 0 begins from a state of zeros.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RecurrentState:
    """What one op remembers of a sequence: float32 values of this shape, whatever the sequence's length."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Conv1d:
    """A short causal convolution of every channel for itself, followed by silu if so asked.

    ``out[r, c] = bias[c] + sum_j weight[j, c] * x[r - taps + 1 + j, c]``, with weight ``(taps, channels)`` and rows
    before the segment from the state ``(taps - 1, channels)``, the oldest first.
    """

    out: str
    x: str
    weight: str
    bias: str | None
    state: str
    silu: bool


@dataclass(frozen=True, slots=True)
class SsmScan:
    """A selective state space (Mamba 1 and 2) over the state ``h``: ``(n_head, head_dim, d_state)``.

    For each head, with ``t = softplus(dt + bias)`` of that head, row after row::

        h[i, n] = exp(t * a[n]) * h[i, n] + t * x[i] * b[n]
        out[i]  = sum_n h[i, n] * c[n] + d * x[i]

    ``x`` is ``[rows, n_head * head_dim]``, ``dt`` is ``[rows, n_head]``, ``b`` and ``c`` are ``[rows, n_group *
    d_state]``, where head ``k`` uses group ``k // (n_head / n_group)``.  Weights: ``a`` is ``(d_state, n_head)``, or
    ``(1, n_head)`` where all of a head's states decay alike; ``d`` and ``bias`` hold one value per head.
    Gu & Dao, "Mamba", 2023; Dao & Gu, "Transformers are SSMs", 2024.
    """

    out: str
    x: str
    dt: str
    b: str
    c: str
    a: str
    d: str
    bias: str | None
    state: str
    n_group: int


@dataclass(frozen=True, slots=True)
class GatedDelta:
    """The gated delta rule over the state ``s``: ``(n_head, head_dim_v, head_dim)``.

    For each head, row after row, with the decay ``exp(a * softplus(g + bias))``, or ``exp(g)`` where there are neither
    ``a`` nor ``bias``, and ``beta`` through a sigmoid::

        s[i, j] = decay[j] * s[i, j]
        e[i]    = beta * (v[i] - sum_j s[i, j] * k[j])
        s[i, j] = s[i, j] + e[i] * k[j]
        out[i]  = scale * sum_j s[i, j] * q[j]

    ``q`` and ``k`` are ``[rows, n_head_k * head_dim]``, ``v`` is ``[rows, n_head * head_dim_v]``, ``beta`` is ``[rows,
    n_head]``; ``g`` (and ``bias``) hold one value per head, or one for each of its ``head_dim`` keys.  ``a`` holds
    one value per head.  Value head ``h`` uses key head ``h % n_head_k``, or ``h // (n_head / n_head_k)`` if `grouped`.
    Yang et al., "Gated Delta Networks", 2024; Kimi Team, "Kimi Linear", 2025.
    """

    out: str
    q: str
    k: str
    v: str
    g: str
    beta: str
    a: str | None
    bias: str | None
    state: str
    n_head_k: int
    scale: float
    grouped: bool


RecurrentOp = Conv1d | SsmScan | GatedDelta
