"""The native backend: the C core, one call a step and no interpreter lock while it runs."""

from __future__ import annotations

import os
from array import array
from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from edgellm.backends.base import Batch, CompileOptions, Weight
from edgellm.backends.batches import check_result
from edgellm.backends.lowering import OP, STATE, lower
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

_KV_NUMBERS = {"f16": 0, "f32": 1, "q8_0": 2}

if TYPE_CHECKING:
    from types import ModuleType

TYPES = frozenset(
    {"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"}
    | {"IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS"}
    | {"MXFP4", "NVFP4", "TQ1_0", "TQ2_0", "Q1_0", "Q2_0"}
)
"""Tensor types with kernels."""


def _load() -> ModuleType | None:
    try:
        return import_module("edgellm._native")
    except ImportError:
        return None


def available() -> str | None:
    """Return None where the native core can be used, else the reason why not."""
    native = _load()
    if native is None:
        return "the C extension was not built; install a C compiler and reinstall edgellm"
    if (OP.itemsize, STATE.itemsize) != (native.OP_BYTES, native.STATE_BYTES):
        return "the C extension belongs to another version; reinstall edgellm"
    return None


def chosen_isa() -> str:
    """Return the instruction set that new models use: the best one, or ``EDGELLM_ISA``.

    Raises BackendError if the variable names one that does not work here.
    """
    info = _require().cpu_info()
    name = os.environ.get("EDGELLM_ISA") or info["isa"]
    if name not in info["available"]:
        raise BackendError(
            f"EDGELLM_ISA={name!r}: this machine can run {', '.join(info['available'])}; unset it to choose the best"
        )
    return str(name)


def _require() -> Any:
    reason = available()
    if reason is not None:
        raise BackendError(f"the native backend cannot be used: {reason}")
    return _load()


def _row_functions(names: Sequence[str]) -> list[tuple[int, int]]:
    """Return address and number of parameters of each function that stands in for a kernel in C.

    Numba compiles them, at most once a machine, and only for programs that have such ops.
    """
    if not names:
        return []
    from edgellm.backends import numba_jit

    reason = numba_jit.available()
    if reason is None:
        from edgellm.backends.jit.calls import FUNCTIONS
        from edgellm.backends.jit.kernels import row_function
        from edgellm.backends.jit.lib import NumbaError

        try:
            return [(row_function(name).address, FUNCTIONS[name].n_params) for name in names]
        except NumbaError as error:
            reason = f"numba could not compile them on this machine: {error}"
    raise UnsupportedModelError(
        f"the native backend needs Numba for these ops of the model: {', '.join(names)}; {reason}. "
        'Install numba, or load with backend="reference", which is slow'
    )


class NativeBackend:
    """Runs Programs in C; `isa` overrides the choice of instruction set."""

    name = "native"

    def __init__(self, isa: str | None = None) -> None:
        self._native = _require()
        self.isa = isa or chosen_isa()

    def compile(self, program: Program, weights: Mapping[str, Weight], options: CompileOptions) -> NativeExecutable:
        """Lower the program and make room.  Matrices are read where they lie.  See `Backend.compile`."""
        weights = with_constants(program, weights)
        missing: dict[str, list[str]] = {}
        for name in program.weights:
            if weights[name].dtype.name not in TYPES:
                missing.setdefault(weights[name].dtype.name, []).append(name)
        if missing:
            types = "; ".join(f"{kind} ({len(names)}, such as {names[0]})" for kind, names in sorted(missing.items()))
            raise UnsupportedModelError(f"the native backend has no kernels for these tensor types: {types}")
        return NativeExecutable(self._native, self.isa, program, weights, options)


class NativeExecutable:
    """A compiled Program; see `Executable`."""

    def __init__(
        self, native: Any, isa: str, program: Program, weights: Mapping[str, Weight], options: CompileOptions
    ) -> None:
        lowered = lower(program, weights)
        self.isa = isa
        self.threads = options.threads
        self._cancelled = native.Cancelled
        self._program = program
        self._most_threads = native.MAX_THREADS
        self._n_groups = len(options.n_pages)
        self._core: Any = None
        self._calls = _row_functions(lowered.calls)
        try:
            self._core = native.Executor(
                isa,
                lowered.ops,
                lowered.weights,
                lowered.slots,
                lowered.states,
                lowered.ropes,
                np.array(options.n_pages, np.int32),
                options.max_rows,
                program.n_vocab,
                _KV_NUMBERS[options.kv_type],
                lowered.recurrent,
                options.n_slots,
                lowered.embedding,
                self._calls,
            )
        except MemoryError as error:
            raise OutOfMemoryError(str(error) or "out of memory") from None

    def step(self, batch: Batch) -> npt.NDArray[np.float32]:
        """Run one step.  See `Executable.step`."""
        core = self._open()
        segments = batch.segments
        # Plain arrays: a token is decoded with a handful of numbers, and NumPy's arrays cost more than they do.
        bounds = array("i", [number for s in segments for number in (s.start, s.n_rows)])
        tables = [table for s in segments for table in s.pages]
        starts = array("q", accumulate(map(len, tables), initial=0))
        pages = tables[0] if len(tables) == 1 else np.concatenate(tables) if tables else np.zeros(0, np.int32)
        result = check_result(self._program, batch)
        logits = np.empty((len(batch.wanted), self._program.widths[result]), np.float32)
        try:
            core.step(
                np.ascontiguousarray(batch.tokens, np.int32),
                bounds,
                np.ascontiguousarray(pages, np.int32),
                starts,
                np.ascontiguousarray(batch.wanted, np.int32),
                logits,
                min(self.threads, self._most_threads),
                array("i", [segment.slot for segment in segments]),
                batch.embed,
            )
        except self._cancelled:
            raise CancelledError("the step was cancelled") from None
        except MemoryError as error:
            raise OutOfMemoryError(str(error)) from None
        except ValueError as error:
            raise ArgumentError(str(error)) from None
        return logits

    def copy_pages(self, group: int, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy pages.  See `Executable.copy_pages`."""
        self._call(self._open().copy_pages, group, np.array(pairs, np.int32).reshape(-1, 2))

    def copy_states(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy recurrent states.  See `Executable.copy_states`."""
        self._call(self._open().copy_states, np.array(pairs, np.int32).reshape(-1, 2))

    def rotate_keys(self, group: int, pages: Sequence[int], delta: int) -> None:
        """Rotate stored keys.  See `Executable.rotate_keys`."""
        self._call(self._open().rotate_keys, group, np.array(pages, np.int32), delta)

    def memory(self) -> tuple[int, int]:
        """Return the bytes held for keys and values, and for everything else but the weights."""
        kv, scratch = self._open().memory()
        return int(kv), int(scratch)

    def cancel(self) -> None:
        """End the running step early.  See `Executable.cancel`."""
        core = self._core
        if core is not None:
            core.cancel()

    def close(self) -> None:
        """Give back all memory.  Raises ArgumentError, and gives nothing back, while a step runs."""
        if self._core is not None:
            self._call(self._core.close)
            self._core = None

    def _open(self) -> Any:
        core = self._core
        if core is None:
            raise ClosedError("the model is closed")
        return core

    def _call(self, function: Any, *args: Any) -> None:
        try:
            function(*args)
        except ValueError as error:
            raise ArgumentError(str(error)) from None
