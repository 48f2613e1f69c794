"""Ops that no kernel in C knows: functions that the executor calls by their address."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgellm.architectures import build
from edgellm.backends.base import Backend, Executable
from edgellm.backends.lowering import KINDS, OP
from edgellm.backends.native import NativeBackend
from edgellm.errors import UnsupportedModelError
from edgellm.program.ops import Xielu
from tests.support import conformance
from tests.support.hostile import Step, spoil_field
from tests.support.native import UNIT, Probe
from tests.support.run import options_for, run_tokens

SIGNATURE = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, *[ctypes.c_int64] * 4)
N_VOCAB, WIDE, ROWS = 100, 24, 30


@pytest.fixture(scope="module")
def values() -> npt.NDArray[np.float32]:
    """Every magnitude on both sides of zero, and the neighbourhoods of where branches meet."""
    sizes = np.concatenate([np.geomspace(1e-30, 1e15, 900), np.linspace(0.0, 2.0, 700), np.linspace(2.0, 100.0, 300)])
    all_of_them = np.concatenate([sizes, -sizes]).astype(np.float32)
    return np.resize(all_of_them, (40, 95))


def shaped(x: npt.NDArray[np.float32], eps: float = -1e-6) -> Probe:
    return Probe.of([x], lambda p, v: p.xielu(v[0], 0.7, 1.3, 0.5, eps))


@pytest.mark.parametrize("eps", [-1e-6, -0.25, 0.5])
def test_xielu(native: Backend, reference: Backend, values: npt.NDArray[np.float32], eps: float) -> None:
    probe = shaped(values, eps)
    found, expected = probe.run(native, threads=3).astype(np.float64), probe.run(reference).astype(np.float64)
    # exp to within two units; sums and products of terms that may cancel: count them in full.
    terms = np.abs(expected) + (0.5 + 1.3) * np.abs(values.astype(np.float64)) + 1.3 * abs(eps)
    assert (np.abs(found - expected) <= 6 * UNIT * terms).all()


def test_xielu_keeps_what_is_not_finite_in_its_element(native: Backend) -> None:
    clean = np.linspace(-3.0, 3.0, 33, dtype=np.float32).reshape(1, 33)
    spoilt = clean.copy()
    spoilt[0, [0, 17, 32]] = np.nan, np.inf, np.nan
    found, expected = shaped(spoilt).run(native), shaped(clean).run(native)
    np.testing.assert_array_equal(found[0, [0, 17, 32]], np.array([np.nan, np.inf, np.nan], np.float32))
    found[0, [0, 17, 32]] = expected[0, [0, 17, 32]]
    np.testing.assert_array_equal(found, expected)


def test_every_backend_gives_the_same_bits(native: Backend, best: Backend, values: npt.NDArray[np.float32]) -> None:
    probe = shaped(values)
    expected = probe.run(best, threads=1)
    for threads in (1, 3):
        np.testing.assert_array_equal(probe.run(native, threads=threads), expected)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Pass every call on to the compiled function, and return how many rows each was for."""
    from edgellm.backends.jit import kernels

    rows: list[int] = []
    compiled = kernels.row_function("xielu")

    def count(*arguments: Any) -> None:
        rows.append(arguments[4])
        compiled.ctypes(*(argument or 0 for argument in arguments))

    through = SIGNATURE(count)
    through.address = ctypes.cast(through, ctypes.c_void_p).value  # type: ignore[attr-defined]
    monkeypatch.setattr(kernels, "row_function", {"xielu": through}.__getitem__)
    return rows


def apertus(backend: Backend, threads: int = 1, chunk: int | None = None) -> npt.NDArray[np.float32]:
    """Return the logits of the tiny Apertus model."""
    model = conformance.recipe("apertus-dense")
    program = build(model.metadata, model.tensors)
    options = options_for(program, conformance.N_TOKENS, threads=threads)
    executable: Executable = backend.compile(program, model.weights(), options)
    logits = run_tokens(executable, program, conformance.tokens(), chunk)
    executable.close()
    return logits


def test_a_whole_model_calls_the_function_for_every_row_once(core: Any, best: Backend, counted: list[int]) -> None:
    expected = apertus(best)
    assert counted == [conformance.N_TOKENS] * 2  # Once in each of its two layers.
    assert conformance.nmse(expected, conformance.golden("apertus-dense")) < 1e-8
    counted.clear()
    np.testing.assert_array_equal(apertus(best, threads=3), expected)
    assert sorted(counted) == [13, 13, 13, 13, 14, 14]
    counted.clear()
    np.testing.assert_array_equal(apertus(best, threads=3, chunk=1), expected)
    assert counted == [1] * 2 * conformance.N_TOKENS  # Nobody is called for no rows.


def test_without_numba_the_model_is_refused_and_others_are_not(core: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("edgellm.backends.jit")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "numba", None)
    backend = NativeBackend()
    with pytest.raises(UnsupportedModelError, match=r"xielu.*numba cannot be imported.*Install numba"):
        apertus(backend)
    one = np.ones((3, 5), np.float32)
    np.testing.assert_array_equal(Probe.of([one], lambda p, v: p.scale(v[0], 2.0)).run(backend), 2.0 * one)


class Caller:
    """An executor of three ops: embed rows of two tables, then call a function of Python with rows of both."""

    def __init__(self, core: Any) -> None:
        self.core = core
        self.seen: list[tuple[Any, ...]] = []
        self.threads: set[int] = set()
        self.function = SIGNATURE(self._called)
        rng = np.random.default_rng(0)
        self.tables = [rng.standard_normal((N_VOCAB, n)).astype(np.float32) for n in (WIDE, 4)]
        self.params = np.array([2.0, 3.0, 5.0], np.float32)
        self.ops = np.zeros(4, OP)
        for name in ("weight", "scale", "bias", "state", "rope"):
            self.ops[name] = -1
        self.ops["out"] = 0, 1, 2, -1
        self.ops["width"] = WIDE, 4, 6, N_VOCAB
        self.ops["weight"][:3] = 0, 1, 2
        self.ops["kind"][2] = KINDS[Xielu]
        self.ops["kind"][3], self.ops["flags"][3], self.ops["a"][3] = 10, 1, 3  # Select the wanted rows.
        self.call = self.ops[2:3]
        self.call["a"], self.call["b"], self.call["size"], self.call["n_head"] = 0, 1, WIDE, 4
        self.calls: Any = [(ctypes.cast(self.function, ctypes.c_void_p).value, 3)]

    def make(self) -> Any:
        weights = [(table, 0, table.shape[1], N_VOCAB, 4 * table.shape[1]) for table in self.tables]
        weights.append((self.params, 0, self.params.size, 1, self.params.nbytes))
        slots, none = np.array([WIDE, 4, 6, N_VOCAB], np.int32), np.zeros(0, np.int32)
        sizes = (64, N_VOCAB, 0, none, 0, -1)
        return self.core.Executor("generic", self.ops, weights, slots, none, [], none, *sizes, self.calls)

    def run(self, threads: int) -> None:
        tokens = np.arange(ROWS, dtype=np.int32)
        segments, starts = np.array([(0, ROWS)], np.int32), np.zeros(1, np.int64)
        Step(tokens, segments, tokens[:0], starts, tokens[:1], N_VOCAB, threads).run(self.make())

    def _called(self, params: int, a: int, b: int, out: int, n_rows: int, n_a: int, n_b: int, n_out: int) -> None:
        def floats(address: int, *shape: int) -> npt.NDArray[np.float32]:
            return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), shape).copy()

        self.threads.add(threading.get_ident())
        second = floats(b, n_rows, n_b) if b else None
        self.seen.append((floats(params, 3) if params else None, floats(a, n_rows, n_a), second, n_out))


@pytest.mark.parametrize("threads", [1, 3])
def test_a_function_gets_its_rows_and_the_lock_is_free_meanwhile(core: Any, threads: int) -> None:
    caller = Caller(core)
    caller.run(threads)  # A function of Python needs the lock: a step that held it would never end.
    assert len(caller.seen) == len(caller.threads) == threads
    seen = sorted(caller.seen, key=lambda call: int(np.flatnonzero((caller.tables[0] == call[1][0]).all(1))[0]))
    np.testing.assert_array_equal(np.concatenate([a for _, a, _, _ in seen]), caller.tables[0][:ROWS])
    np.testing.assert_array_equal(np.concatenate([b for _, _, b, _ in seen]), caller.tables[1][:ROWS])
    for params, _, _, n_out in seen:
        np.testing.assert_array_equal(params, caller.params)
        assert n_out == 6


def test_a_function_may_do_without_second_input_and_parameters(core: Any) -> None:
    caller = Caller(core)
    caller.call["n_head"], caller.call["b"], caller.call["weight"] = 0, 99, 99
    caller.calls = [(caller.calls[0][0], 0)]
    caller.run(2)
    assert all(params is None and second is None for params, _, second, _ in caller.seen)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        *[("d", i, "which is not there") for i in (-(2**31), -1, 1, 2**31 - 1)],
        *[("size", n, "reads past") for n in (-1, 0, WIDE + 1, 2**31 - 1)],
        *[("n_head", n, "reads past") for n in (-(2**31), -1, 5, 2**31 - 1)],
        *[(side, slot, "read") for side in ("a", "b") for slot in (-(2**31), -1, 4, 2**31 - 1)],
        ("weight", -1, "has no parameters"),
        ("weight", 3, "no weight 3"),
        ("weight", 0, "float vector of 3"),
        ("width", 0, "width 0"),
        ("width", 7, "writes past"),
        ("out", -1, "every row to the logits"),
        ("flags", 2, "must be waited for"),
    ],
)
def test_everything_but_the_address_is_checked(core: Any, field: str, value: int, words: str) -> None:
    caller = Caller(core)
    caller.call[field] = value
    with pytest.raises(ValueError, match=words):
        caller.make()
    assert caller.seen == []


def test_spoiled_calls(core: Any) -> None:
    from edgellm.backends.jit.kernels import row_function

    rng = np.random.default_rng(23)
    counts: Counter[str] = Counter()
    for _ in range(600):
        caller = Caller(core)
        caller.params = np.ones(4, np.float32)
        caller.calls = [(row_function("xielu").address, 4)]
        caller.call["size"], caller.call["n_head"] = 6, 0
        for _ in range(int(rng.integers(1, 4))):
            spoil_field(caller.call, rng, "op")
        try:
            caller.run(2)
            counts["worked"] += 1
        except (ValueError, MemoryError):
            counts["refused"] += 1
    assert counts["worked"] > 100
    assert counts["refused"] > 200


@pytest.mark.parametrize(
    ("calls", "error"),
    [
        ([(0, 3)], ValueError),
        ([(4096, -1)], ValueError),
        ([(4096, 2**62)], ValueError),
        ([(4096, 4)], ValueError),
        ([], ValueError),
        ([4096], TypeError),
        ([(4096,)], TypeError),
        ([("4096", 3)], TypeError),
        ([(2**64, 3)], OverflowError),
        (7, TypeError),
    ],
)
def test_calls_that_make_no_sense(core: Any, calls: Any, error: type[Exception]) -> None:
    caller = Caller(core)
    caller.calls = calls
    with pytest.raises(error):
        caller.make()
