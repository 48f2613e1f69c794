"""The recurrent ops of the reference backend: one segment of one sequence at a time, row after row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from edgellm.errors import ArgumentError
from edgellm.program import RecurrentState
from edgellm.program.recurrent import Conv1d, GatedDelta, RecurrentOp, SsmScan

Array: TypeAlias = npt.NDArray[np.float64]
Weights: TypeAlias = Mapping[str, npt.NDArray[np.float32]]


class StateStore:
    """The states of every slot, as float64.

    What a step leaves takes effect with `commit`, so that a step that fails has changed nothing.
    """

    def __init__(self, states: Mapping[str, RecurrentState], n_slots: int) -> None:
        self.n_slots = n_slots
        self._shapes = {name: state.shape for name, state in states.items()}
        self._values = {name: np.zeros((n_slots, *shape)) for name, shape in self._shapes.items()}
        self._left: dict[tuple[str, int], Array] = {}

    def load(self, name: str, slot: int, start: int) -> Array:
        """Return a copy of a state as a segment that begins at `start` finds it."""
        if start == 0:
            return np.zeros(self._shapes[name])
        found: Array = self._values[name][slot].copy()
        return found

    def leave(self, name: str, slot: int, value: Array) -> None:
        """Note a state for `commit`."""
        self._left[name, slot] = value

    def commit(self) -> None:
        """Make what the step has left the content of its slots."""
        for (name, slot), value in self._left.items():
            self._values[name][slot] = value
        self._left.clear()

    def discard(self) -> None:
        """Forget what a failed step has left."""
        self._left.clear()

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy slots, one pair after the other.  Raises ArgumentError for one that is not there."""
        bad = [slot for pair in pairs for slot in pair if not 0 <= slot < self.n_slots]
        if bad:
            raise ArgumentError(f"slot {bad[0]} is not from 0 to {self.n_slots - 1}")
        for source, target in pairs:
            for values in self._values.values():
                values[target] = values[source]


def run_recurrent(op: RecurrentOp, inputs: Sequence[Array], state: Array, weights: Weights) -> tuple[Array, Array]:
    """Return the output rows of one segment and the state after them.  `inputs` are in the op's own order."""
    match op:
        case Conv1d():
            return _conv1d(op, inputs[0], state, weights)
        case SsmScan():
            return _ssm_scan(op, inputs, state, weights)
        case GatedDelta():
            return _gated_delta(op, inputs, state, weights)


def _conv1d(op: Conv1d, x: Array, state: Array, weights: Weights) -> tuple[Array, Array]:
    taps = len(state) + 1
    weight = weights[op.weight].astype(np.float64).reshape(-1, taps)
    window = np.concatenate([state, x])
    out = np.zeros_like(x) if op.bias is None else np.tile(weights[op.bias].astype(np.float64), (len(x), 1))
    for j in range(taps):
        out += weight[:, j] * window[j : j + len(x)]
    if op.silu:
        out *= _sigmoid(out)
    return out, window[len(x) :]


def _ssm_scan(op: SsmScan, inputs: Sequence[Array], state: Array, weights: Weights) -> tuple[Array, Array]:
    n_head, head_dim, d_state = state.shape
    n_rows = len(inputs[0])
    x = inputs[0].reshape(n_rows, n_head, head_dim)
    bias = 0.0 if op.bias is None else weights[op.bias].reshape(-1).astype(np.float64)
    step = _softplus(inputs[1] + bias)
    b, c = (np.repeat(v.reshape(n_rows, op.n_group, d_state), n_head // op.n_group, axis=1) for v in inputs[2:])
    a = weights[op.a].astype(np.float64).reshape(n_head, 1, -1)
    d = weights[op.d].astype(np.float64).reshape(n_head, 1)
    out = np.empty_like(x)
    for r in range(n_rows):
        t = step[r][:, None, None]
        state = np.exp(t * a) * state + t * x[r][:, :, None] * b[r][:, None]
        out[r] = np.einsum("hin,hn->hi", state, c[r]) + d * x[r]
    return out.reshape(n_rows, -1), state


def _gated_delta(op: GatedDelta, inputs: Sequence[Array], state: Array, weights: Weights) -> tuple[Array, Array]:
    n_head, head_dim_v, head_dim = state.shape
    q, k, v, g, beta = inputs
    n_rows, share = len(q), n_head // op.n_head_k
    head = np.arange(n_head)
    key_head = head // share if op.grouped else head % op.n_head_k
    q, k = (x.reshape(n_rows, op.n_head_k, head_dim)[:, key_head] for x in (q, k))
    v = v.reshape(n_rows, n_head, head_dim_v)
    if op.a is not None and op.bias is not None:
        g = np.repeat(weights[op.a].astype(np.float64).reshape(-1), g.shape[1] // n_head) * _softplus(
            g + weights[op.bias].reshape(-1)
        )
    decay, strength = np.exp(g.reshape(n_rows, n_head, -1)), _sigmoid(beta)
    out = np.empty_like(v)
    for r in range(n_rows):
        state = decay[r][:, None] * state
        error = strength[r][:, None] * (v[r] - np.einsum("hij,hj->hi", state, k[r]))
        state = state + error[:, :, None] * k[r][:, None]
        out[r] = op.scale * np.einsum("hij,hj->hi", state, q[r])
    return out.reshape(n_rows, -1), state


def _sigmoid(x: Array) -> Array:
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def _softplus(x: Array) -> Array:
    return np.logaddexp(0.0, x)
