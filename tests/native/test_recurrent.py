"""The recurrent ops in C, at sizes that models do and do not have: close to their meaning, and equal in every bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgellm.backends.base import Backend, Batch, CompileOptions, Executable, Segment, Weight
from edgellm.backends.lowering import Lowered, lower
from edgellm.backends.reference import ReferenceBackend
from edgellm.program import Program, ProgramBuilder, Value
from tests.support.native import available, vector

N = 70
TOKENS = np.random.default_rng(1).integers(0, 32, N).astype(np.int32)

Make = Callable[[ProgramBuilder, Callable[[str, int], Value]], Value]
Case = tuple[dict[str, tuple[int, ...]], Make]


def conv(channels: int, taps: int, *, bias: bool, silu: bool) -> Case:
    shapes = {"l.weight": (taps, channels)} | ({"l.bias": (channels,)} if bias else {})
    return shapes, lambda b, value: b.conv1d(value("x", channels), "l", taps, silu=silu)


def scan(n_head: int, head_dim: int, d_state: int, n_group: int, *, each: bool = False, bias: bool = True) -> Case:
    shapes = {"l_a": (d_state, n_head) if each else (1, n_head), "l_d": (n_head,)}
    shapes |= {"l_dt.bias": (n_head,)} if bias else {}

    def make(b: ProgramBuilder, value: Callable[[str, int], Value]) -> Value:
        x, dt = value("x", n_head * head_dim), value("dt", n_head)
        inputs = (value("b", n_group * d_state), value("c", n_group * d_state))
        return b.ssm_scan(x, dt, *inputs, "l", d_state, n_group, "l_dt.bias" if bias else None)

    return shapes, make


def delta(
    n_head: int,
    n_head_k: int,
    head_dim: int,
    head_dim_v: int,
    *,
    each: bool = False,
    grouped: bool = False,
    decays: bool = False,
) -> Case:
    width = n_head * head_dim if each else n_head
    shapes: dict[str, tuple[int, ...]] = {} if decays else {"l_a": (n_head,), "l_dt.bias": (width,)}

    def make(b: ProgramBuilder, value: Callable[[str, int], Value]) -> Value:
        q, k = (b.l2_norm(value(name, n_head_k * head_dim), 1e-6, head_dim) for name in ("q", "k"))
        v, g, beta = value("v", n_head * head_dim_v), value("g", width), value("beta", n_head)
        g = b.scale(b.activate(g, "sigmoid"), -2.0) if decays else g
        return b.gated_delta(q, k, v, g, beta, "l", head_dim, grouped=grouped, decays=decays)

    return shapes, make


CASES = {
    "conv": conv(48, 4, bias=True, silu=True),
    "conv, odd": conv(37, 3, bias=False, silu=False),
    "conv, long": conv(20, 9, bias=True, silu=False),
    "mamba 1": scan(50, 1, 16, 1, each=True, bias=False),
    "mamba 1, odd": scan(33, 1, 20, 1, each=True),
    "mamba 2, 128": scan(6, 24, 128, 2),
    "mamba 2, 64": scan(20, 5, 64, 1),
    "mamba 2, 16": scan(3, 17, 16, 3),
    "mamba 2, odd": scan(5, 7, 27, 1, bias=False),
    "delta, 128": delta(4, 2, 128, 19),
    "delta, 64": delta(4, 4, 64, 32),
    "delta, odd": delta(3, 1, 40, 9),
    "delta, grouped": delta(6, 2, 64, 16, grouped=True),
    "delta, by key": delta(2, 2, 32, 48, each=True),
    "delta, by key, odd": delta(4, 2, 21, 5, each=True),
    "delta, decays": delta(4, 4, 64, 32, decays=True),
    "delta, decays by key": delta(2, 2, 32, 48, each=True, decays=True),
}


class Probe:
    """A program that feeds one op from tables, by token; the logits are what it makes."""

    def __init__(self, case: Case) -> None:
        rng = np.random.default_rng(7)
        shapes, make = case
        tables: dict[str, tuple[int, ...]] = {}
        n_vocab = 0

        def value(name: str, width: int) -> Value:
            tables[name] = (width, n_vocab)
            return builder.embed(name, width, n_vocab)

        builder = ProgramBuilder("probe", shapes)
        width = make(builder, value).width
        n_vocab = max(32, width)
        builder = ProgramBuilder("probe", shapes)
        logits = builder.select_rows(make(builder, value))
        if width < n_vocab:
            shapes = shapes | {"spread.weight": (width, n_vocab)}
            logits = builder.matmul(logits, "spread", n_vocab)
        self.width = width
        first = next(iter(tables.values()))[0]
        self.program: Program = builder.build(logits, n_embd=first, n_ctx_train=1 << 20)
        self.weights: dict[str, Weight] = {}
        for name, shape in (shapes | tables).items():
            array = rng.standard_normal(shape[::-1])
            if name == "l_a":
                array = -np.abs(array)
            self.weights[name] = vector(np.eye(n_vocab, width) if name == "spread.weight" else array)

    def compile(self, backend: Backend, threads: int = 1) -> Executable:
        return backend.compile(self.program, self.weights, CompileOptions((), N, "f32", threads, 2))

    def run(self, executable: Executable, chunk: int = N, slot: int = 0) -> npt.NDArray[np.float32]:
        found: list[Any] = []
        for start in range(0, N, chunk):
            ids = TOKENS[start : start + chunk]
            batch = Batch(ids, [Segment(start, len(ids), [], slot)], np.arange(len(ids), dtype=np.int32))
            found.append(executable.step(batch)[:, : self.width])
        return np.concatenate(found)


EXTREME = (-(2**31), -2, -1, 0, 1, 2, 3, 7, 16, 17, 4096, 2**24, 2**30, 2**31 - 1)


def executor(core: Any, low: Lowered, n_vocab: int, n_slots: int = 2) -> Any:
    """Make an executor for N rows."""
    return core.Executor(
        *(available()[0], low.ops, low.weights, low.slots, low.states, low.ropes, np.zeros(0, np.int32), N),
        *(n_vocab, 0, low.recurrent, n_slots),
    )


@pytest.mark.parametrize("case", ["conv, odd", "mamba 1", "mamba 2, odd", "delta, odd", "delta, by key"])
def test_descriptions_that_make_no_sense_are_refused_or_harmless(case: str, core: Any) -> None:
    # Run under the sanitizers this also shows that nothing is read or written where it should not be.
    probe = Probe(CASES[case])
    low = lower(probe.program, probe.weights)
    sound = low.ops, low.recurrent
    spoiled = [("op", i, name) for i in range(len(low.ops)) for name in low.ops.dtype.names if name not in ("f0", "f1")]
    spoiled += [("state", 0, i) for i in range(3)]
    refused = 0
    for what, i, name in spoiled:
        for value in EXTREME:
            low.ops, low.recurrent = (array.copy() for array in sound)
            (low.ops if what == "op" else low.recurrent)[i][name] = value
            if what == "state" and value > 4096:
                continue  # It would only ask for more memory than there is.
            try:
                made = executor(core, low, probe.program.n_vocab)
            except ValueError:
                refused += 1
                continue
            step(made, probe.program.n_vocab)
            made.close()
    assert refused > len(spoiled)


def step(made: Any, n_vocab: int, slots: Sequence[int] = (1,), n_rows: int = 3) -> None:
    """Run one row of tokens after another in a segment for each slot, from position 0 on."""
    n = n_rows * len(slots)
    segments = np.array([(0, n_rows)] * len(slots), np.int32)
    starts, wanted = np.zeros(1, np.int64), np.arange(n, dtype=np.int32)
    logits, chosen = np.empty((n, n_vocab), np.float32), np.array(slots, np.int32)
    made.step(TOKENS[:n], segments, np.zeros(0, np.int32), starts, wanted, logits, 1, chosen)


def test_slots_that_make_no_sense_are_refused(core: Any) -> None:
    probe = Probe(CASES["mamba 2, odd"])
    low = lower(probe.program, probe.weights)
    made = executor(core, low, probe.program.n_vocab)
    step(made, probe.program.n_vocab, (0, 1))
    for slots in ((0, 0), (-1,), (2,), (2**31 - 1,), (-(2**31),)):
        with pytest.raises(ValueError, match="slot"):
            step(made, probe.program.n_vocab, slots)
    rows, none = np.array([(0, 1)], np.int32), np.zeros(0, np.int32)
    logits = np.empty((0, probe.program.n_vocab), np.float32)
    with pytest.raises(ValueError, match="too short"):
        made.step(TOKENS[:1], rows, none, np.zeros(1, np.int64), none, logits, 1, none)
    for pairs in ([0, 2], [-1, 0], [0], [2**31 - 1, 0]):
        with pytest.raises(ValueError, match="slot"):
            made.copy_states(np.array(pairs, np.int32))
    with pytest.raises(ValueError, match="no room"):
        executor(core, low, probe.program.n_vocab, n_slots=0)


@pytest.mark.parametrize("case", CASES)
def test_recurrent_ops_mean_what_the_reference_says_to_the_last_bit_alike(case: str, core: Any) -> None:
    from edgellm.backends.native import NativeBackend

    probe = Probe(CASES[case])
    meant = probe.run(probe.compile(ReferenceBackend())).astype(np.float64)
    expected = None
    for isa in available():
        for threads in (1, 3):
            executable = probe.compile(NativeBackend(isa), threads)
            for chunk in (N, 1, 33):
                found = probe.run(executable, chunk, slot=chunk % 2)
                expected = found if expected is None else expected
                np.testing.assert_array_equal(found, expected, f"{isa}, {threads} threads, chunks of {chunk}")
            executable.close()
    assert expected is not None
    assert np.std(meant) > 1e-3
    assert np.sum((expected - meant) ** 2) < 1e-11 * np.sum(meant**2)


def test_a_run_without_values_has_no_direction(core: Any) -> None:
    from edgellm.backends.native import NativeBackend

    builder = ProgramBuilder("probe", {})
    logits = builder.select_rows(builder.l2_norm(builder.embed("x", 32, 32), 1e-3, 8))
    program = builder.build(logits, n_embd=32, n_ctx_train=64)
    table = np.random.default_rng(2).standard_normal((32, 32))
    table[3] = 0.0
    table[4] *= 1e-6
    ids = np.arange(8, dtype=np.int32)
    for backend in (ReferenceBackend(), NativeBackend()):
        executable = backend.compile(program, {"x": vector(table)}, CompileOptions((), 8))
        found = executable.step(Batch(ids, [Segment(0, 8, [])], ids)).astype(np.float64)
        runs = table[:8].astype(np.float32).astype(np.float64).reshape(8, 4, 8)
        length = np.maximum(np.sqrt(np.sum(runs**2, axis=-1, keepdims=True)), 1e-3)
        np.testing.assert_allclose(found, (runs / length).reshape(8, 32), rtol=1e-6, atol=0)
        executable.close()
