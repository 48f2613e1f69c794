"""The Numba backend: the kernels of `edgellm.backends.jit`, for machines without a C compiler.

Arithmetic is that of the native backend, bit for bit: the same IEEE operations in the same order.  Weights stay
the file's bytes.  A step is one call in each thread, without the interpreter lock.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from edgellm.backends.base import PAGE, Batch, CompileOptions, Weight
from edgellm.backends.batches import check_batch, check_pages, check_result
from edgellm.backends.jit import frame as at
from edgellm.backends.jit.support import lacking
from edgellm.backends.lowering import KINDS, QUANTIZE, Lowered, lower
from edgellm.backends.weight_table import with_constants
from edgellm.errors import (
    ArgumentError,
    BackendError,
    CancelledError,
    ClosedError,
    OutOfMemoryError,
    UnsupportedModelError,
)
from edgellm.program import Program
from edgellm.program.ops import Attention, Embed, MatMul

Ints: TypeAlias = npt.NDArray[np.int64]

_KV_TYPES: dict[str, tuple[npt.DTypeLike, int]] = {"f32": (np.float32, 0), "f16": (np.float16, 1)}


def available() -> str | None:
    """Return None where Numba can be used, else the reason why not."""
    try:
        import_module("numba")
    except Exception as error:  # A Numba that does not fit this NumPy or Python fails in many ways.
        return f"numba cannot be imported: {error}"
    return None


class NumbaBackend:
    """Runs Programs in kernels that Numba compiles, once per machine."""

    name = "numba"

    def compile(self, program: Program, weights: Mapping[str, Weight], options: CompileOptions) -> NumbaExecutable:
        """Lower the program, compile the kernels it needs and make room.  See `Backend.compile`."""
        weights = with_constants(program, weights)
        from edgellm.backends.jit.kernels import TYPES

        if options.kv_type not in _KV_TYPES:
            raise BackendError(
                f"the numba backend keeps keys and values as {' or '.join(sorted(_KV_TYPES))}, not {options.kv_type}: "
                "choose one of these as kv_type, or the native backend"
            )
        missing: dict[str, list[str]] = {}
        for name in program.weights:
            if weights[name].dtype.id not in TYPES:
                missing.setdefault(weights[name].dtype.name, []).append(name)
        if missing:
            types = "; ".join(f"{kind} ({len(names)}, such as {names[0]})" for kind, names in sorted(missing.items()))
            raise UnsupportedModelError(f"the numba backend has no kernels for these tensor types: {types}")
        unknown = lacking(program)
        if unknown:
            raise UnsupportedModelError(f"the numba backend has no kernels for these ops: {', '.join(unknown)}")
        from edgellm.backends.jit.lib import NumbaError

        try:
            return NumbaExecutable(program, lower(program, weights), options)
        except NumbaError as error:
            raise BackendError(f"numba could not compile the kernels on this machine: {error}") from error


class NumbaExecutable:
    """A compiled Program; see `Executable`."""

    def __init__(self, program: Program, lowered: Lowered, options: CompileOptions) -> None:
        from edgellm.backends.jit.executor import run
        from edgellm.backends.jit.team import Team

        if len(options.n_pages) != len(program.windows):
            raise ArgumentError(f"{len(options.n_pages)} page counts for {len(program.windows)} groups of layers")
        self._limits: dict[str, Any] = {
            "n_vocab": program.n_vocab,
            "max_rows": options.max_rows,
            "windows": program.windows,
            "n_pages": options.n_pages,
        }
        self._program, self._n_pages, self._embedding = program, options.n_pages, lowered.embedding
        self._ops, self._states = lowered.ops, lowered.states
        self._ropes = lowered.ropes
        self._run = run
        self._busy = threading.Lock()
        self._shared = np.zeros(at.COUNTERS + len(lowered.ops), np.int64)
        self._buffers: _Buffers | None = None
        try:
            self._buffers = _Buffers(lowered, options)
        except MemoryError as error:
            raise OutOfMemoryError(f"no memory for the model's keys, values and work space: {error}") from None
        self._frame = self._buffers.frame
        self._frame[at.SHARED] = _address(self._shared)
        self._frame[at.N_GROUPS] = len(options.n_pages)
        run(_address(self._frame), self._ops[:0], 0, 1)  # Compile now, in this thread alone.
        self.threads = options.threads
        self._team = Team(options.threads)

    def step(self, batch: Batch) -> npt.NDArray[np.float32]:
        """Run one step.  See `Executable.step`."""
        with self._alone():
            buffers = self._open()
            check_batch(batch, **self._limits)
            result = check_result(self._program, batch)
            logits = np.empty((len(batch.wanted), self._program.widths[result]), np.float32)
            inputs = self._describe(buffers, batch, logits)
            self._shared[:] = 0
            self._shared[at.STOP_AT] = at.NEVER
            self._team.resize(self.threads)
            buffers.give_room(self._team.size)
            ops = self._ops[: self._embedding + 1] if batch.embed else self._ops
            address, run = _address(self._frame), self._run
            self._team.run(lambda thread, n: run(address, ops, thread, n))
            del inputs
            # A cancel counts for the step that runs, also when it came too late to cut it short.
            if self._shared[at.CANCELLED]:
                raise CancelledError("the step was cancelled")
            return buffers.rows_of(ops[-1], len(logits)) if batch.embed else logits

    def copy_pages(self, group: int, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy pages.  See `Executable.copy_pages`."""
        with self._alone():
            buffers = self._open()
            self._check_pages(group, [page for pair in pairs for page in pair])
            for i in self._of_group(group):
                for source, target in pairs:
                    buffers.keys[i][target] = buffers.keys[i][source]
                    buffers.values[i][target] = buffers.values[i][source]

    def rotate_keys(self, group: int, pages: Sequence[int], delta: int) -> None:
        """Rotate stored keys.  See `Executable.rotate_keys`."""
        from edgellm.backends.jit.angles import turns
        from edgellm.backends.jit.kernels import compiled

        with self._alone():
            buffers = self._open()
            self._check_pages(group, pages)
            rotate = compiled("rotate", buffers.kv_kind).ctypes
            for i in self._of_group(group):
                if self._states[i]["rope"] < 0:
                    continue
                frequencies, neox, _ = self._ropes[self._states[i]["rope"]]
                angles = turns(np.array([delta]), frequencies, 1.0)  # The keys carry the magnitude already.
                for page in pages:
                    rotate(_address(buffers.layers[i]), page, _address(angles), angles.size, neox)

    def copy_states(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy recurrent states, of which programs for this backend have none.  See `Executable.copy_states`."""
        self._open()
        if pairs:
            raise ArgumentError(f"there is no slot {pairs[0][0]} of recurrent states")

    def cancel(self) -> None:
        """End the running step early.  See `Executable.cancel`."""
        self._shared[at.CANCELLED] = 1

    def close(self) -> None:
        """Give back all memory.  Raises ArgumentError, and gives nothing back, while a step runs."""
        with self._alone():
            self._buffers = None
            self._frame = np.zeros(0, np.int64)
            self._team.close()

    def _alone(self) -> _Alone:
        return _Alone(self._busy)

    def _open(self) -> _Buffers:
        if self._buffers is None:
            raise ClosedError("the model is closed")
        return self._buffers

    def _of_group(self, group: int) -> list[int]:
        return [i for i, state in enumerate(self._states) if state["group"] == group]

    def _check_pages(self, group: int, pages: Sequence[int]) -> None:
        if not 0 <= group < len(self._n_pages):
            raise ArgumentError(f"there is no page group {group}")
        check_pages(pages, self._n_pages[group])

    def _describe(self, buffers: _Buffers, batch: Batch, logits: npt.NDArray[np.float32]) -> list[Any]:
        """Write a batch into the frame and return the arrays that must outlive the step."""
        from edgellm.backends.jit.angles import turns

        segments = batch.segments
        positions = np.concatenate([np.arange(s.start, s.start + s.n_rows, dtype=np.int32) for s in segments])
        owners = np.repeat(np.arange(len(segments), dtype=np.int32), [s.n_rows for s in segments])
        pages = [np.ascontiguousarray(table, np.int32) for s in segments for table in s.pages]
        tables = np.array([_address(table) for table in pages], np.int64)
        angles = [turns(positions, frequencies, magnitude) for frequencies, _, magnitude in self._ropes]
        turned = np.array([_address(array) for array in angles], np.int64)
        tokens, wanted = (np.ascontiguousarray(ids, np.int32) for ids in (batch.tokens, batch.wanted))
        buffers.slots[0] = _address(logits)
        self._frame[at.N_ROWS], self._frame[at.N_WANTED] = len(positions), len(wanted)
        arrays = {
            at.TOKENS: tokens,
            at.POSITIONS: positions,
            at.OWNERS: owners,
            at.TABLES: tables,
            at.WANTED: wanted,
            at.ANGLES: turned,
        }
        for place, array in arrays.items():
            self._frame[place] = _address(array)
        return [*arrays.values(), *pages, *angles]


class _Alone:
    """Lets one call in at a time; a second one is refused."""

    def __init__(self, busy: threading.Lock) -> None:
        self._busy = busy

    def __enter__(self) -> None:
        if not self._busy.acquire(blocking=False):
            raise ArgumentError("the model is busy with a step")

    def __exit__(self, *_: object) -> None:
        self._busy.release()


class _Buffers:
    """All memory of an executable, and the frame that says where it is."""

    def __init__(self, lowered: Lowered, options: CompileOptions) -> None:
        from edgellm.backends.jit import attention, matmul
        from edgellm.backends.jit.kernels import compiled, row_function

        kv_dtype, self.kv_kind = _KV_TYPES[options.kv_type]
        rows = options.max_rows
        self._data = [np.frombuffer(weight[0], np.uint8) for weight in lowered.weights]
        self._values = [np.zeros((rows, width), np.float32) for width in lowered.slots]
        self.slots = np.array([0, *map(_address, self._values)], np.int64)
        self._weights = self._describe_weights(lowered)
        self._ropes = np.array([(2 * len(f), neox) for f, neox, _ in lowered.ropes], np.int64)
        self.keys, self.values = [], []
        self.layers = np.zeros((len(lowered.states), at.LAYER_SIZE), np.int64)
        for layer, state in zip(self.layers, lowered.states, strict=True):
            heads, dim, dim_v = (int(state[name]) for name in ("n_head_kv", "head_dim", "head_dim_v"))
            n_pages = options.n_pages[state["group"]]
            self.keys.append(_pages((n_pages, heads, dim, PAGE), kv_dtype))
            self.values.append(_pages((n_pages, heads, PAGE, dim_v), kv_dtype))
            places = _address(self.keys[-1]), _address(self.values[-1])
            layer[:] = [*places, heads, dim, dim_v, state["window"], state["group"]]
        widest = max((int(op["width"]) for op in lowered.ops if op["kind"] == QUANTIZE), default=0)
        self._inputs = np.zeros((widest // 32, rows, matmul.ACT_BYTES), np.uint8)
        value_width = max((int(state["head_dim_v"]) for state in lowered.states), default=0)
        scratch = max(matmul.scratch_bytes(rows), attention.scratch_bytes(value_width)) + 64
        self._scratch_bytes = -(-scratch // 4096) * 4096
        self.frame = np.zeros(at.FRAME_SIZE, np.int64)
        self.frame[at.VALUES] = _address(self.slots)
        self.frame[at.ROPES] = _address(self._ropes)
        self.frame[at.LAYERS] = _address(self.layers)
        self.frame[at.WEIGHTS] = _address(self._weights)
        self._calls = np.array([row_function(name).address for name in lowered.calls], np.int64)
        self.frame[at.CALLS] = _address(self._calls)
        self.frame[at.INPUTS] = _address(self._inputs)
        self._scratch = np.zeros((0, self._scratch_bytes), np.uint8)
        self.give_room(options.threads)
        if any(op["kind"] == KINDS[Attention] for op in lowered.ops):
            self.frame[at.STORE] = compiled("store", self.kv_kind).address
            self.frame[at.ATTEND] = compiled("attend", self.kv_kind).address

    def rows_of(self, op: Any, n: int) -> npt.NDArray[np.float32]:
        """Return a copy of the first rows of what an op has made."""
        width = int(op["width"])
        return np.array(self._values[op["out"]].reshape(-1)[: n * width].reshape(n, width))

    def give_room(self, threads: int) -> None:
        """See to it that so many threads have work space.  Raises OutOfMemoryError."""
        if threads > len(self._scratch):
            try:
                self._scratch = np.zeros((threads, self._scratch_bytes), np.uint8)
            except MemoryError as error:
                raise OutOfMemoryError(f"no memory for the work space of {threads} threads: {error}") from None
            self.frame[at.SCRATCH] = _address(self._scratch)
            self.frame[at.SCRATCH_BYTES] = self._scratch_bytes

    def _describe_weights(self, lowered: Lowered) -> Ints:
        from edgellm.backends.jit.kernels import compiled

        found = np.zeros((len(lowered.weights), at.WEIGHT_SIZE), np.int64)
        for row, data, (_, _, n_in, n_out, row_bytes) in zip(found, self._data, lowered.weights, strict=True):
            row[:4] = _address(data), row_bytes, n_in, n_out
        for op in lowered.ops:
            for kind, topic, place in ((KINDS[MatMul], "matmul", at.MATMUL), (KINDS[Embed], "row", at.ROW)):
                if op["kind"] == kind:
                    found[op["weight"], place] = compiled(topic, lowered.weights[op["weight"]][1]).address
        return found


def _pages(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    try:
        return np.zeros(shape, dtype)
    except ValueError as error:  # More bytes than can be counted.
        raise MemoryError(str(error)) from None


def _address(array: npt.NDArray[Any]) -> int:
    return array.ctypes.data
