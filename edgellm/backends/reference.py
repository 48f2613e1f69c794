"""The reference backend: NumPy, slow, short.  It is the meaning of every op.

Arithmetic is float64 on the exact float32 value of every weight; only stored keys and values and
the logits are rounded.  So its errors are far below those of any backend that is compared with it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from edgellm.backends.base import PAGE, Batch, CompileOptions, KVType, Segment, Weight
from edgellm.backends.batches import check_result
from edgellm.backends.reference_attention import Pages, attend_one, through_bytes
from edgellm.backends.reference_recurrent import StateStore, run_recurrent
from edgellm.backends.reference_rows import ACTIVATIONS, matmul, run_row_op, sinkhorn, softmax, spread
from edgellm.backends.weight_table import with_constants
from edgellm.dtypes import DType
from edgellm.errors import ArgumentError, CancelledError, ClosedError, OutOfMemoryError, UnsupportedModelError
from edgellm.program import Program, RopeSpec
from edgellm.program.experts import MatMulExperts, Mix, Route
from edgellm.program.ops import (
    Activate,
    Add,
    Attention,
    Concat,
    Dot,
    Embed,
    Glu,
    L2Norm,
    LayerNorm,
    MatMul,
    Mul,
    Op,
    PositionScale,
    RmsNorm,
    Rope,
    Scale,
    SelectRows,
    Sinkhorn,
    Slice,
    Softcap,
    Softmax,
    Xielu,
    inputs,
)
from edgellm.program.recurrent import Conv1d, GatedDelta, RecurrentOp, SsmScan

Array: TypeAlias = npt.NDArray[np.float64]

_KV_TYPES: dict[KVType, npt.DTypeLike] = {"f16": np.float16, "f32": np.float32, "q8_0": np.float32}


class ReferenceBackend:
    """Runs anything gguf-py can dequantize, anywhere NumPy runs."""

    name = "reference"

    def compile(self, program: Program, weights: Mapping[str, Weight], options: CompileOptions) -> ReferenceExecutable:
        """Dequantize the weights and make room for keys and values.  See `Backend.compile`."""
        weights = with_constants(program, weights)
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
        self.threads = options.threads
        self._n_pages = options.n_pages
        self._group = {name: program.group(name) for name in program.states}
        self._pages = {
            name: Pages(
                state, options.n_pages[self._group[name]], _KV_TYPES[options.kv_type], options.kv_type == "q8_0"
            )
            for name, state in program.states.items()
        }
        self._states = StateStore(program.recurrent, options.n_slots)
        self._cancelled = threading.Event()
        self._closed = False

    def step(self, batch: Batch) -> npt.NDArray[np.float32]:
        last = self._check(batch)
        self._states.discard()
        self._cancelled.clear()
        positions = np.concatenate([np.arange(s.start, s.start + s.n_rows) for s in batch.segments])
        values: dict[str, Array] = {}
        # What overflows becomes infinite and is the sampler's business; NumPy must not warn.
        with np.errstate(all="ignore"):
            for op in self._program.ops:
                if self._cancelled.is_set():
                    raise CancelledError("the step was cancelled")
                values[op.out] = self._run(op, values, positions, batch)
                if op.out == last:
                    break
        self._states.commit()
        return values[last].astype(np.float32)

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
                    turned = self._rotate(keys, np.full(PAGE, delta), spec, magnitude=1.0)
                    store.keys[page] = through_bytes(turned) if store.in_bytes else turned

    def copy_states(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._check_open()
        self._states.copy(pairs)

    def cancel(self) -> None:
        self._cancelled.set()

    def close(self) -> None:
        self._closed = True
        self._weights = {}
        self._pages = {}
        self._states = StateStore({}, 0)

    def _run(self, op: Op, values: dict[str, Array], positions: npt.NDArray[np.intp], batch: Batch) -> Array:
        match op:
            case Embed():
                table = self._weights[op.weight]
                if op.by == "first":
                    positions = np.zeros_like(positions)
                at = batch.tokens if op.by == "token" else np.minimum(positions, len(table) - 1)
                return table[at].astype(np.float64)
            case MatMul():
                matrix = self._weights[op.weight]
                rows = slice(op.first, op.first + self._program.widths[op.out])
                y = matmul(values[op.x], matrix[rows])
                scale = 1.0 if op.scale is None else self._weights[op.scale].item()
                bias = 0.0 if op.bias is None else self._weights[op.bias][rows].astype(np.float64)
                return (y + bias) * scale if op.scaled_bias else y * scale + bias
            case RmsNorm():
                x = values[op.x]
                x = x.reshape(len(x), x.shape[1] // op.size, op.size)
                x = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + op.eps)
                weight = 1.0 if op.weight is None else self._weights[op.weight].astype(np.float64)
                normed: Array = x * weight
                return normed.reshape(values[op.x].shape)
            case L2Norm():
                x = values[op.x].reshape(len(values[op.x]), -1, op.size)
                unit: Array = x / np.maximum(np.sqrt(np.sum(x * x, axis=-1, keepdims=True)), op.eps)
                return unit.reshape(values[op.x].shape)
            case Rope():
                x = values[op.x]
                heads = x.reshape(len(x), -1, op.head_dim)
                return self._rotate(heads, positions, op.spec, op.spec.magnitude).reshape(x.shape)
            case Attention():
                keys = None if op.k is None or op.v is None else (values[op.k], values[op.v])
                return self._attend(op, values[op.q], keys, batch.segments)
            case Add():
                return values[op.a] + values[op.b]
            case Mul():
                return values[op.a] * spread(values[op.b], values[op.a].shape[1])
            case Slice():
                runs = values[op.x].reshape(len(values[op.x]), -1, op.size)
                length = self._program.widths[op.out] // runs.shape[1]
                return runs[:, :, op.start : op.start + length].reshape(len(runs), -1)
            case Scale():
                y = values[op.x] * op.factor
                if op.weight is not None:
                    each = spread(self._weights[op.weight].reshape(-1).astype(np.float64), y.shape[1])
                    y = y / each if op.inverse else y * each
                return y + op.shift
            case PositionScale():
                growth: Array = 1.0 + op.factor * np.log1p((positions + op.offset) // op.period)
                return values[op.x] * growth[:, None]
            case Glu():
                gate, up = values[op.gate], values[op.up]
                if op.limit:
                    gate, up = np.minimum(gate, op.limit), np.clip(up, -op.limit, op.limit)
                return spread(ACTIVATIONS[op.activation](gate), up.shape[1]) * (up + op.offset)
            case Activate():
                return ACTIVATIONS[op.activation](values[op.x])
            case Xielu():
                x = values[op.x]
                below = (np.expm1(np.minimum(x, op.eps)) - x) * op.alpha_n
                return np.where(x > 0.0, op.alpha_p * x * x, below) + op.beta * x
            case Softcap():
                x = values[op.x]
                return np.clip(x, -op.cap, op.cap) if op.hard else op.cap * np.tanh(x / op.cap)
            case Sinkhorn():
                x = values[op.x].reshape(len(values[op.x]), -1, op.size, op.size)
                return sinkhorn(x, op.rounds, op.eps).reshape(values[op.x].shape)
            case Softmax():
                x = values[op.x].reshape(len(values[op.x]), -1, op.size)
                return softmax(x).reshape(values[op.x].shape)
            case SelectRows():
                return values[op.x][batch.wanted]
            case LayerNorm() | Concat() | Dot() | Mix() | Route() | MatMulExperts():
                given = [values[name] for name in inputs(op)]
                return run_row_op(op, given, self._weights, self._program.widths[op.out])
            case Conv1d() | SsmScan() | GatedDelta():
                return self._recur(op, [values[name] for name in inputs(op)], batch.segments)

    def _rotate(self, x: Array, positions: npt.NDArray[np.intp], spec: RopeSpec, magnitude: float) -> Array:
        """Rotate heads ``[rows, heads, head_dim]``, each row by its position."""
        frequency = np.asarray(spec.inv_freq)
        if spec.factors is not None:
            frequency = frequency / self._weights[spec.factors]
        angle = positions[:, None, None] * frequency
        cos, sin = magnitude * np.cos(angle), magnitude * np.sin(angle)
        low, end = spec.offset, spec.offset + spec.n_rot
        middle = low + spec.n_rot // 2
        first = slice(low, end, 2) if spec.style == "norm" else slice(low, middle)
        second = slice(low + 1, end, 2) if spec.style == "norm" else slice(middle, end)
        y = x.copy()
        y[..., first] = x[..., first] * cos - x[..., second] * sin
        y[..., second] = x[..., first] * sin + x[..., second] * cos
        return y

    def _attend(self, op: Attention, q: Array, keys: tuple[Array, Array] | None, segments: Sequence[Segment]) -> Array:
        store, group = self._pages[op.state], self._group[op.state]
        sinks = None if op.sinks is None else self._weights[op.sinks].astype(np.float64)
        out = []
        end = 0
        for segment in segments:
            rows = slice(end, end + segment.n_rows)
            end = rows.stop
            positions = np.arange(segment.start, segment.start + segment.n_rows)
            table = np.asarray(segment.pages[group])
            if keys is not None:
                store.put(table, positions, keys[0][rows], keys[1][rows])
            out.append(attend_one(op, store, table, positions, q[rows], sinks))
        return np.concatenate(out)

    def _recur(self, op: RecurrentOp, values: list[Array], segments: Sequence[Segment]) -> Array:
        out = []
        end = 0
        for segment in segments:
            rows = slice(end, end + segment.n_rows)
            end = rows.stop
            state = self._states.load(op.state, segment.slot, segment.start)
            made, state = run_recurrent(op, [value[rows] for value in values], state, self._weights)
            self._states.leave(op.state, segment.slot, state)
            out.append(made)
        return np.concatenate(out)

    def _of_group(self, group: int) -> list[Pages]:
        self._check_open()
        return [pages for name, pages in self._pages.items() if self._group[name] == group]

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the model is closed")

    def _check(self, batch: Batch) -> str:
        """Return the value that the batch asks for."""
        self._check_open()
        n_rows = sum(segment.n_rows for segment in batch.segments)
        if not 0 < n_rows <= self._max_rows or len(batch.tokens) != n_rows:
            raise ArgumentError(f"{len(batch.tokens)} tokens in {n_rows} rows, of at most {self._max_rows}")
        for name, ids, limit in (("token", batch.tokens, self._program.n_vocab), ("row", batch.wanted, n_rows)):
            if len(ids) and not 0 <= ids.min() <= ids.max() < limit:
                raise ArgumentError(f"a {name} is not from 0 to {limit - 1}")
        for segment in batch.segments:
            self._check_segment(segment)
        slots = [segment.slot for segment in batch.segments] if self._program.recurrent else []
        if len(set(slots)) < len(slots) or any(not 0 <= slot < self._states.n_slots for slot in slots):
            raise ArgumentError(f"the slots {slots} are not different ones from 0 to {self._states.n_slots - 1}")
        return check_result(self._program, batch)

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
