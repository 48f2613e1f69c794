"""The meaning of attention: what a layer remembers of each sequence, and how its queries read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from edgellm.backends.base import PAGE
from edgellm.errors import ArgumentError
from edgellm.program import KVState
from edgellm.program.ops import Attention
from edgellm.program.slopes import alibi_slopes

Array: TypeAlias = npt.NDArray[np.float64]


class Pages:
    """The keys and values of one layer: ``[n_pages, PAGE, n_head_kv, head_dim]``."""

    def __init__(self, state: KVState, n_pages: int, dtype: npt.DTypeLike, in_bytes: bool = False) -> None:
        """`in_bytes`: what is stored goes through 8-bit integers."""
        self.state = state
        self.in_bytes = in_bytes
        self.keys = np.zeros((n_pages, PAGE, state.n_head_kv, state.head_dim), dtype)
        self.values = np.zeros((n_pages, PAGE, state.n_head_kv, state.head_dim_v), dtype)

    def put(self, table: npt.NDArray[np.int32], positions: npt.NDArray[np.intp], k: Array, v: Array) -> None:
        """Store one row per position."""
        page, slot = table[positions // PAGE], positions % PAGE
        for x, dim, store in ((k, self.state.head_dim, self.keys), (v, self.state.head_dim_v, self.values)):
            heads = x.reshape(len(x), self.state.n_head_kv, dim)
            store[page, slot] = through_bytes(heads) if self.in_bytes else heads

    def check(self, pages: Sequence[int]) -> None:
        bad = [page for page in pages if not 0 <= page < len(self.keys)]
        if bad:
            raise ArgumentError(f"page {bad[0]} is not from 0 to {len(self.keys) - 1}")


def through_bytes(x: Array) -> Array:
    """Return what 8-bit integers hold of `x`: blocks of 32 along the last axis, each with a scale in float16."""
    dim = x.shape[-1]
    blocks = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -dim % 32)]).reshape(*x.shape[:-1], -1, 32)
    scale = (np.abs(blocks).max(axis=-1, keepdims=True) / 127).astype(np.float16).astype(np.float64)
    integers = np.clip(np.rint(np.divide(blocks, scale, out=np.zeros_like(blocks), where=scale > 0)), -128, 127)
    kept: Array = (integers * scale).reshape(*x.shape[:-1], -1)[..., :dim]
    return kept


def attend_one(
    op: Attention,
    store: Pages,
    table: npt.NDArray[np.int32],
    positions: npt.NDArray[np.intp],
    q: Array,
    sinks: Array | None,
) -> Array:
    """Return the attention of one sequence's rows over what it remembers."""
    state = store.state
    window = positions[-1] + 1 if state.window is None else state.window
    seen = np.arange(max(0, positions[0] - window + 1), positions[-1] + 1)
    page, slot = table[seen // PAGE], seen % PAGE
    distance = positions[:, None] - seen
    if state.causal:
        hidden = (distance < 0) | (distance >= window)
    else:
        distance = np.abs(distance)
        hidden = np.zeros(distance.shape, bool) if state.window is None else distance > window // 2
    if state.chunked:
        hidden |= seen < positions[:, None] // window * window
    group = op.n_head // state.n_head_kv
    q = q.reshape(len(q), state.n_head_kv, group, state.head_dim)
    slope = np.array(alibi_slopes(op.n_head, op.alibi)).reshape(state.n_head_kv, group)
    out = np.empty((len(q), state.n_head_kv, group, state.head_dim_v))
    for head in range(state.n_head_kv):
        keys = store.keys[page, slot, head].astype(np.float64)
        scores = op.scale * (q[:, head] @ keys.T)
        if op.softcap is not None:
            scores = op.softcap * np.tanh(scores / op.softcap)
        scores = scores - slope[head][:, None] * distance[:, None]
        scores = np.where(hidden[:, None], -np.inf, scores)
        best = scores.max(axis=-1, keepdims=True)
        rest = 0.0
        if sinks is not None:
            sink = sinks.reshape(-1, group)[head][:, None]
            best = np.maximum(best, sink)
            rest = np.exp(sink - best)
        chance = np.exp(scores - best)
        chance /= chance.sum(axis=-1, keepdims=True) + rest
        out[:, head] = chance @ store.values[page, slot, head].astype(np.float64)
    return out.reshape(len(q), -1)
