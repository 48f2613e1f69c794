"""The meaning of the ops that see one row at a time and need more than a line: activations, experts, mixtures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from edgellm.program.experts import MatMulExperts, Mix, Route
from edgellm.program.ops import Concat, Dot, LayerNorm

Array: TypeAlias = npt.NDArray[np.float64]
Weights: TypeAlias = Mapping[str, npt.NDArray[np.float32]]
RowOp = LayerNorm | Concat | Dot | Mix | Route | MatMulExperts

_PIECE = 1 << 20
"""Weights made float64 at a time, so that a matrix needs no second copy."""
_LEAST_SUM = 2.0**-14


def run_row_op(op: RowOp, values: Sequence[Array], weights: Weights, width: int) -> Array:
    """Return the output, `width` wide, of an op whose inputs are `values`."""
    match op:
        case LayerNorm():
            return _layer_norm(op, values[0], weights)
        case Concat():
            a = values[0].reshape(len(values[0]), op.runs, -1)
            b = values[1].reshape(len(a), 1 if op.shared else op.runs, -1)
            b = np.broadcast_to(b, (len(b), op.runs, b.shape[2]))
            return np.concatenate([a, b], axis=2).reshape(len(a), -1)
        case Dot():
            product = (values[0] * values[1]).reshape(len(values[0]), -1, op.size)
            return np.asarray(product.sum(axis=2))
        case Mix():
            x = values[0].reshape(len(values[0]), -1, op.size)
            by = values[1].reshape(len(x), -1, x.shape[1])
            mixed: Array = by @ x
            return mixed.reshape(len(x), -1)
        case Route():
            return _route(op, values[0], weights)
        case MatMulExperts():
            return _experts(op, values, weights, width // op.n_slots)


def matmul(x: Array, weight: npt.NDArray[np.float32]) -> Array:
    """Return ``weight @ x[r]`` for each row."""
    y = np.empty((len(x), len(weight)))
    step = max(1, _PIECE // weight.shape[1])
    for i in range(0, len(weight), step):
        y[:, i : i + step] = x @ weight[i : i + step].astype(np.float64).T
    return y


def spread(values: Array, width: int) -> Array:
    """Repeat each value (of the last axis) for the neighbours it covers."""
    return np.repeat(values, width // values.shape[-1], axis=-1)


def _layer_norm(op: LayerNorm, x: Array, weights: Weights) -> Array:
    runs = x.reshape(len(x), -1, op.size)
    if op.centred:
        runs = runs - runs.mean(axis=-1, keepdims=True)
    runs = runs / np.sqrt(np.mean(runs * runs, axis=-1, keepdims=True) + op.eps)
    weight = 1.0 if op.weight is None else weights[op.weight].astype(np.float64)
    bias = 0.0 if op.bias is None else weights[op.bias].astype(np.float64)
    normed: Array = runs * weight + bias
    return normed.reshape(x.shape)


def softmax(x: Array) -> Array:
    """Return the shares of each run along the last axis."""
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    chance: Array = powers / powers.sum(axis=-1, keepdims=True)
    return chance


def sinkhorn(x: Array, rounds: int, eps: float) -> Array:
    """Return matrices (along the last two axes) whose rows and columns nearly sum to one."""
    x = softmax(x) + eps
    x = x / (x.sum(axis=-2, keepdims=True) + eps)
    for _ in range(rounds - 1):
        x = x / (x.sum(axis=-1, keepdims=True) + eps)
        x = x / (x.sum(axis=-2, keepdims=True) + eps)
    return x


def _best(scores: Array, n: int) -> npt.NDArray[np.intp]:
    """Return the places of the `n` largest scores, best first and the lower place among equals."""
    return np.argsort(-scores, axis=-1, kind="stable")[..., :n]


def _route(op: Route, logits: Array, weights: Weights) -> Array:
    score = logits if op.scoring == "chosen" else (softmax if op.scoring == "softmax" else sigmoid)(logits)
    wanted = score if op.bias is None else score + weights[op.bias]
    if op.n_groups > 1:
        groups = wanted.reshape(len(wanted), op.n_groups, -1)
        two = np.sort(groups, axis=-1)[..., -2:].sum(axis=-1)
        used = np.zeros(two.shape, bool)
        np.put_along_axis(used, _best(two, op.n_groups_used), True, axis=-1)
        wanted = np.where(used[..., None], groups, -np.inf).reshape(wanted.shape)
    chosen = _best(wanted, op.n_used)
    weight = np.take_along_axis(score, chosen, axis=-1)
    if op.scoring == "chosen":
        weight = softmax(weight)
    if op.normalised:
        weight = weight / np.maximum(weight.sum(axis=-1, keepdims=True), _LEAST_SUM)
    return np.concatenate([chosen, weight * op.scale], axis=1)


def _experts(op: MatMulExperts, values: Sequence[Array], weights: Weights, n_out: int) -> Array:
    matrices = weights[op.weight]
    rows = slice(op.first, op.first + n_out)
    x = values[0].reshape(len(values[0]), -1, matrices.shape[-1])
    x = np.broadcast_to(x, (len(x), op.n_slots, x.shape[2]))
    if op.routes is None:
        expert = np.broadcast_to(np.arange(op.n_slots), x.shape[:2])
    else:
        expert = values[1][:, : op.n_slots].astype(np.intp)
    out = np.empty((*x.shape[:2], n_out))
    for e in np.unique(expert):
        mine = expert == e
        y = matmul(x[mine], matrices[e, rows])
        if op.scale is not None:
            y = y * weights[op.scale][e]
        out[mine] = y if op.bias is None else y + weights[op.bias][e, rows]
    return out.reshape(len(x), -1)


def sigmoid(x: Array) -> Array:
    """Return ``1 / (1 + exp(-x))`` without overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def _gelu(x: Array) -> Array:
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))


def _relu(x: Array) -> Array:
    return np.maximum(x, 0.0)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "silu": lambda x: x * sigmoid(x),
    "gelu": _gelu,
    "gelu_quick": lambda x: x * sigmoid(1.702 * x),
    "relu": _relu,
    "relu2": lambda x: _relu(x) ** 2,
    "sigmoid": sigmoid,
    "softplus": lambda x: np.logaddexp(x, 0.0),
    "tanh": np.tanh,
}
"""Activation → function of float64 arrays."""
