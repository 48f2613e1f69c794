"""The reference backend: NumPy, slow, short.  It is the meaning of every op.

Arithmetic is float64 on the exact float32 value of every weight; only stored keys and values and
the logits are rounded.  So its errors are far below those of any backend that is compared with it.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from edgellm.backends.base import PAGE, Batch, CompileOptions, KVType, Segment, Weight
from edgellm.dtypes import DType
from edgellm.errors import ArgumentError, CancelledError, ClosedError, OutOfMemoryError, UnsupportedModelError
from edgellm.program import KVState, Program, RopeSpec
from edgellm.program.ops import (
    Add,
    Attention,
    Embed,
    Glu,
    MatMul,
    Op,
    PositionScale,
    RmsNorm,
    Rope,
    Scale,
    SelectRows,
    Softcap,
)

Array: TypeAlias = npt.NDArray[np.float64]

_PIECE = 1 << 20
"""Weights made float64 at a time, so that a matrix needs no second copy."""


_KV_TYPES: dict[KVType, npt.DTypeLike] = {"f16": np.float16, "f32": np.float32}


class ReferenceBackend:
    """Runs anything gguf-py can dequantize, anywhere NumPy runs."""

    name = "reference"

    def compile(self, program: Program, weights: Mapping[str, Weight], options: CompileOptions) -> ReferenceExecutable:
        """Dequantize the weights and make room for keys and values.  See `Backend.compile`."""
        kinds = {weights[name].dtype for name in program.weights}
        unknown = sorted(kind.name for kind in kinds if not _can_dequantize(kind))
        if unknown:
            raise UnsupportedModelError(f"the reference backend has no tensors of type {', '.join(unknown)}")
        try:
            elements = {name: _dequantize(weights[name], shape) for name, shape in program.weights.items()}
            return ReferenceExecutable(program, elements, options)
        except MemoryError as error:
            raise OutOfMemoryError(f"no memory for the model's weights, keys and values: {error}") from None


class ReferenceExecutable:
    """A compiled Program.  See `Executable` for the methods."""

    def __init__(self, program: Program, weights: dict[str, npt.NDArray[np.float32]], options: CompileOptions) -> None:
        if len(options.n_pages) != len(program.windows):
            raise ArgumentError(f"{len(options.n_pages)} page counts for {len(program.windows)} groups of layers")
        self._program = program
        self._weights = weights
        self._max_rows = options.max_rows
        self._n_pages = options.n_pages
        self._group = {name: program.group(name) for name in program.states}
        self._pages = {
            name: _Pages(state, options.n_pages[self._group[name]], _KV_TYPES[options.kv_type])
            for name, state in program.states.items()
        }
        self._cancelled = threading.Event()
        self._closed = False

    def step(self, batch: Batch) -> npt.NDArray[np.float32]:
        self._check(batch)
        self._cancelled.clear()
        positions = np.concatenate([np.arange(s.start, s.start + s.n_rows) for s in batch.segments])
        values: dict[str, Array] = {}
        # What overflows becomes infinite and is the sampler's business; NumPy must not warn.
        with np.errstate(all="ignore"):
            for op in self._program.ops:
                if self._cancelled.is_set():
                    raise CancelledError("the step was cancelled")
                values[op.out] = self._run(op, values, positions, batch)
        return values[self._program.ops[-1].out].astype(np.float32)

    def copy_pages(self, group: int, pairs: Sequence[tuple[int, int]]) -> None:
        for pages in self._of_group(group):
            for source, target in pairs:
                pages.check([source, target])
                pages.keys[target] = pages.keys[source]
                pages.values[target] = pages.values[source]

    def rotate_keys(self, group: int, pages: Sequence[int], delta: int) -> None:
        for store in self._of_group(group):
            store.check(pages)
            spec = store.state.rope
            if spec is not None:
                for page in pages:
                    keys = store.keys[page].astype(np.float64)
                    store.keys[page] = self._rotate(keys, np.full(PAGE, delta), spec, magnitude=1.0)

    def cancel(self) -> None:
        self._cancelled.set()

    def close(self) -> None:
        self._closed = True
        self._weights = {}
        self._pages = {}

    def _run(self, op: Op, values: dict[str, Array], positions: npt.NDArray[np.intp], batch: Batch) -> Array:
        match op:
            case Embed():
                return self._weights[op.weight][batch.tokens].astype(np.float64)
            case MatMul():
                y = _matmul(values[op.x], self._weights[op.weight])
                scale = 1.0 if op.scale is None else self._weights[op.scale].item()
                bias = 0.0 if op.bias is None else self._weights[op.bias].astype(np.float64)
                return (y + bias) * scale if op.scaled_bias else y * scale + bias
            case RmsNorm():
                x = values[op.x]
                x = x.reshape(len(x), x.shape[1] // op.size, op.size)
                x = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + op.eps)
                weight = 1.0 if op.weight is None else self._weights[op.weight].astype(np.float64)
                normed: Array = x * weight
                return normed.reshape(values[op.x].shape)
            case Rope():
                x = values[op.x]
                heads = x.reshape(len(x), -1, op.head_dim)
                return self._rotate(heads, positions, op.spec, op.spec.magnitude).reshape(x.shape)
            case Attention():
                return self._attend(op, values[op.q], values[op.k], values[op.v], batch.segments)
            case Add():
                return values[op.a] + values[op.b]
            case Scale():
                return values[op.x] * op.factor
            case PositionScale():
                growth: Array = 1.0 + op.factor * np.log1p(positions // op.period)
                return values[op.x] * growth[:, None]
            case Glu():
                return _ACTIVATIONS[op.activation](values[op.gate]) * values[op.up]
            case Softcap():
                return op.cap * np.tanh(values[op.x] / op.cap)
            case SelectRows():
                return values[op.x][batch.wanted]

    def _rotate(self, x: Array, positions: npt.NDArray[np.intp], spec: RopeSpec, magnitude: float) -> Array:
        """Rotate heads ``[rows, heads, head_dim]``, each row by its position."""
        frequency = np.asarray(spec.inv_freq)
        if spec.factors is not None:
            frequency = frequency / self._weights[spec.factors]
        angle = positions[:, None, None] * frequency
        cos, sin = magnitude * np.cos(angle), magnitude * np.sin(angle)
        first = slice(0, spec.n_rot, 2) if spec.style == "norm" else slice(0, spec.n_rot // 2)
        second = slice(1, spec.n_rot, 2) if spec.style == "norm" else slice(spec.n_rot // 2, spec.n_rot)
        y = x.copy()
        y[..., first] = x[..., first] * cos - x[..., second] * sin
        y[..., second] = x[..., first] * sin + x[..., second] * cos
        return y

    def _attend(self, op: Attention, q: Array, k: Array, v: Array, segments: Sequence[Segment]) -> Array:
        store, group = self._pages[op.state], self._group[op.state]
        out = []
        end = 0
        for segment in segments:
            rows = slice(end, end + segment.n_rows)
            end = rows.stop
            positions = np.arange(segment.start, segment.start + segment.n_rows)
            table = np.asarray(segment.pages[group])
            store.put(table, positions, k[rows], v[rows])
            out.append(_attend_one(op, store, table, positions, q[rows]))
        return np.concatenate(out)

    def _of_group(self, group: int) -> list[_Pages]:
        self._check_open()
        return [pages for name, pages in self._pages.items() if self._group[name] == group]

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the model is closed")

    def _check(self, batch: Batch) -> None:
        self._check_open()
        n_rows = sum(segment.n_rows for segment in batch.segments)
        if not 0 < n_rows <= self._max_rows or len(batch.tokens) != n_rows:
            raise ArgumentError(f"{len(batch.tokens)} tokens in {n_rows} rows, of at most {self._max_rows}")
        for name, ids, limit in (("token", batch.tokens, self._program.n_vocab), ("row", batch.wanted, n_rows)):
            if len(ids) and not 0 <= ids.min() <= ids.max() < limit:
                raise ArgumentError(f"a {name} is not from 0 to {limit - 1}")
        for segment in batch.segments:
            self._check_segment(segment)

    def _check_segment(self, segment: Segment) -> None:
        if segment.start < 0 or segment.n_rows < 1:
            raise ArgumentError(f"a segment of {segment.n_rows} rows at position {segment.start}")
        if len(segment.pages) != len(self._n_pages):
            raise ArgumentError(f"{len(segment.pages)} page tables for {len(self._n_pages)} groups of layers")
        last = (segment.start + segment.n_rows - 1) // PAGE
        for table, n_pages, window in zip(segment.pages, self._n_pages, self._program.windows, strict=True):
            first = 0 if window is None else max(0, segment.start - window + 1) // PAGE
            seen = np.asarray(table)[first : last + 1]
            if len(seen) <= last - first or seen.min() < 0 or seen.max() >= n_pages:
                raise ArgumentError(
                    f"position {segment.start} needs pages from 0 to {n_pages - 1}, has {seen.tolist()}"
                )


class _Pages:
    """The keys and values of one layer: ``[n_pages, PAGE, n_head_kv, head_dim]``."""

    def __init__(self, state: KVState, n_pages: int, dtype: npt.DTypeLike) -> None:
        self.state = state
        self.keys = np.zeros((n_pages, PAGE, state.n_head_kv, state.head_dim), dtype)
        self.values = np.zeros((n_pages, PAGE, state.n_head_kv, state.head_dim_v), dtype)

    def put(self, table: npt.NDArray[np.int32], positions: npt.NDArray[np.intp], k: Array, v: Array) -> None:
        """Store one row per position."""
        page, slot = table[positions // PAGE], positions % PAGE
        self.keys[page, slot] = k.reshape(len(k), self.state.n_head_kv, self.state.head_dim)
        self.values[page, slot] = v.reshape(len(v), self.state.n_head_kv, self.state.head_dim_v)

    def check(self, pages: Sequence[int]) -> None:
        bad = [page for page in pages if not 0 <= page < len(self.keys)]
        if bad:
            raise ArgumentError(f"page {bad[0]} is not from 0 to {len(self.keys) - 1}")


def _attend_one(
    op: Attention, store: _Pages, table: npt.NDArray[np.int32], positions: npt.NDArray[np.intp], q: Array
) -> Array:
    """Return the attention of one sequence's rows over what it remembers."""
    state = store.state
    window = positions[-1] + 1 if state.window is None else state.window
    seen = np.arange(max(0, positions[0] - window + 1), positions[-1] + 1)
    page, slot = table[seen // PAGE], seen % PAGE
    distance = positions[:, None] - seen
    hidden = (distance < 0) | (distance >= window)
    group = op.n_head // state.n_head_kv
    q = q.reshape(len(q), state.n_head_kv, group, state.head_dim)
    out = np.empty((len(q), state.n_head_kv, group, state.head_dim_v))
    for head in range(state.n_head_kv):
        keys = store.keys[page, slot, head].astype(np.float64)
        scores = op.scale * (q[:, head] @ keys.T)
        if op.softcap is not None:
            scores = op.softcap * np.tanh(scores / op.softcap)
        scores = np.where(hidden[:, None], -np.inf, scores)
        chance = np.exp(scores - scores.max(axis=-1, keepdims=True))
        chance /= chance.sum(axis=-1, keepdims=True)
        out[:, head] = chance @ store.values[page, slot, head].astype(np.float64)
    return out.reshape(len(q), -1)


def _matmul(x: Array, weight: npt.NDArray[np.float32]) -> Array:
    y = np.empty((len(x), len(weight)))
    step = max(1, _PIECE // weight.shape[1])
    for i in range(0, len(weight), step):
        y[:, i : i + step] = x @ weight[i : i + step].astype(np.float64).T
    return y


def _silu(x: Array) -> Array:
    return x * 0.5 * (1.0 + np.tanh(0.5 * x))


def _gelu(x: Array) -> Array:
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))


_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"silu": _silu, "gelu": _gelu}


def _can_dequantize(dtype: DType) -> bool:
    from gguf import GGMLQuantizationType, quants

    try:
        quants.dequantize(np.zeros((1, dtype.nbytes), np.uint8), GGMLQuantizationType(dtype.id))
    except (NotImplementedError, ValueError):
        return False
    return True


def _dequantize(weight: Weight, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Return the elements as float32, with the slowest axis of `shape` first, as NumPy has it."""
    from gguf import GGMLQuantizationType, quants

    rows = np.frombuffer(weight.data, np.uint8).reshape(-1, weight.dtype.row_bytes(weight.shape[0]))
    elements = quants.dequantize(rows, GGMLQuantizationType(weight.dtype.id))
    return np.asarray(elements, np.float32).reshape(shape[::-1])
