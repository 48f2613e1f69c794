"""What the Numba backend promises besides what every backend does: the bits of the native one, whoever computes."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core.errors import LoweringError

from edgellm import dtypes
from edgellm.backends.base import PAGE, Backend, Batch, CompileOptions, KVType, Segment
from edgellm.backends.jit import kernels, support
from edgellm.backends.native import NativeBackend
from edgellm.backends.numba_jit import NumbaBackend, NumbaExecutable
from edgellm.errors import ArgumentError, BackendError, CancelledError, OutOfMemoryError, UnsupportedModelError
from edgellm.program import Program
from edgellm.program.ops import Add, Glu
from tests.support.native import N_VOCAB, Floats, Ids, decoder, feed, room

N = 40
ROOM = 400
KV_TYPES: tuple[KVType, ...] = ("f16", "f32")
ALL = sorted(dtypes.by_id(number).name for number in kernels.TYPES)
SOME = ("F16", "Q4_1", "Q6_K")


def sequence(n: int, seed: int = 0) -> Ids:
    return np.random.default_rng(seed).integers(0, N_VOCAB, n).astype(np.int32)


class Compiled:
    """A decoder with matrices of one type."""

    def __init__(
        self, kind: str, backend: Backend | None = None, *, kv_type: KVType = "f16", threads: int = 1, n: int = ROOM
    ) -> None:
        self.program: Program
        self.program, weights = decoder(kind)
        options = room(self.program, n_tokens=n, kv_type=kv_type, threads=threads)
        self.executable = (backend or NumbaBackend()).compile(self.program, weights, options)

    def run(self, *sequences: Ids, **how: Any) -> list[Floats]:
        return feed(self.executable, self.program, sequences, **how)


@pytest.fixture(params=SOME)
def model(request: pytest.FixtureRequest) -> Iterator[Compiled]:
    compiled = Compiled(request.param, threads=2)
    yield compiled
    compiled.executable.close()


@pytest.fixture
def native() -> Backend:
    if find_spec("edgellm._native") is None:
        pytest.skip("edgellm._native is not built")
    return NativeBackend()


@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("kind", ALL)
def test_logits_are_those_of_the_native_backend(kind: str, kv_type: KVType, native: Backend) -> None:
    mine, other = (Compiled(kind, backend, kv_type=kv_type, threads=2) for backend in (None, native))
    for chunk in (None, 1, 7):
        (found,), (expected,) = (m.run(sequence(N), chunk=chunk) for m in (mine, other))
        assert np.isfinite(expected).all()
        np.testing.assert_array_equal(found, expected)


def test_long_contexts_and_turned_keys_are_those_of_the_native_backend(native: Backend) -> None:
    results = []
    for backend in (None, native):
        compiled = Compiled("Q4_K", backend, threads=2, n=700)
        logits = compiled.run(sequence(600), chunk=200)
        for group in range(len(compiled.program.windows)):
            compiled.executable.rotate_keys(group, [3, 1], -1000)
        logits += compiled.run(sequence(10, 4), start=64, pages=[[0, 1, 2, 3, 4]])
        results.append(np.concatenate(logits))
    np.testing.assert_array_equal(results[0], results[1])


@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_threads_do_not_matter(kv_type: KVType) -> None:
    results = []
    for threads in (1, 2, 3, 8):
        compiled = Compiled("Q4_1", kv_type=kv_type, threads=threads, n=300)
        results += [compiled.run(sequence(300))[0], compiled.run(sequence(300), chunk=70)[0]]
        compiled.executable.close()
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_chunks_of_a_prompt_do_not_matter(model: Compiled) -> None:
    (whole,) = model.run(sequence(N))
    for chunk in (1, 2, 7, 16, 33):
        np.testing.assert_array_equal(model.run(sequence(N), chunk=chunk)[0], whole)


def test_neighbours_and_page_numbers_do_not_matter(model: Compiled) -> None:
    lengths = (N, 1, 33, 16, 5)
    sequences = [sequence(n, seed) for seed, n in enumerate(lengths)]
    alone = [model.run(s)[0] for s in sequences]
    counts = [-(-n // PAGE) for n in lengths]
    order = np.random.default_rng(1).permutation(ROOM // PAGE)
    scattered = np.split(order[: sum(counts)], np.cumsum(counts)[:-1])
    for chunk in (None, 1, 16):
        for found, expected in zip(model.run(*sequences, chunk=chunk, pages=scattered), alone, strict=True):
            np.testing.assert_array_equal(found, expected)


def test_models_run_side_by_side_in_several_threads() -> None:
    models = [Compiled("Q4_1", threads=2) for _ in range(3)]
    expected = models[0].run(sequence(N))[0]
    found: dict[int, Floats] = {}

    def work(i: int) -> None:
        for _ in range(5):
            found[i] = models[i].run(sequence(N), chunk=9)[0]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(3):
        np.testing.assert_array_equal(found[i], expected)


def test_closing_ends_the_threads() -> None:
    def helpers() -> set[threading.Thread]:
        return {t for t in threading.enumerate() if t.name.startswith("edgellm-numba")}

    before = helpers()
    compiled = Compiled("F16", threads=4)
    mine = helpers() - before
    assert len(mine) == 3
    compiled.executable.close()
    for thread in mine:
        thread.join(10.0)
    assert not any(thread.is_alive() for thread in mine)


@pytest.mark.parametrize("when", ["as it begins", "as it ends"])
def test_a_cancel_counts_for_the_step_that_runs(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = Compiled("F16", threads=2)
    executable = compiled.executable
    assert isinstance(executable, NumbaExecutable)
    run = executable._team.run

    def cancelled(job: Any) -> None:
        if when == "as it begins":
            executable.cancel()
        run(job)
        executable.cancel()

    monkeypatch.setattr(executable._team, "run", cancelled)
    with pytest.raises(CancelledError):
        compiled.run(sequence(N))
    monkeypatch.undo()
    executable.cancel()  # Nothing runs: this one is for nobody.
    assert np.isfinite(compiled.run(sequence(N))[0]).all()


@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="turns off instructions of x86")
def test_the_instruction_set_does_not_matter() -> None:
    code = (
        "import hashlib\n"
        "from tests.backends.test_numba import Compiled, sequence, N\n"
        "print(hashlib.sha256(Compiled('Q4_1').run(sequence(N))[0].tobytes()).hexdigest())"
    )
    plain = {"NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": "+sse2"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        env=os.environ | plain,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == hashlib.sha256(Compiled("Q4_1").run(sequence(N))[0].tobytes()).hexdigest()


def test_a_running_step_lets_nothing_else_in(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = Compiled("F16")
    executable = compiled.executable
    assert isinstance(executable, NumbaExecutable)
    refused = []

    def meanwhile(job: Any) -> None:
        for call in (executable.close, lambda: executable.copy_pages(0, [(0, 1)]), lambda: compiled.run(sequence(1))):
            with pytest.raises(ArgumentError, match="busy"):
                call()
            refused.append(call)

    monkeypatch.setattr(executable._team, "run", meanwhile)
    compiled.run(sequence(1))
    assert len(refused) == 3


def test_types_it_cannot_read_are_listed_together() -> None:
    program, weights = decoder("Q4_K")
    other = dict(weights)
    for tensor, kind in (("head.weight", "IQ4_XS"), ("layer0.q.weight", "TQ1_0"), ("layer1.q.weight", "IQ4_XS")):
        other[tensor] = dataclasses.replace(weights[tensor], dtype=dtypes.by_name(kind))
    with pytest.raises(UnsupportedModelError, match=r"IQ4_XS \(2, such as layer1.q.weight\); TQ1_0 \(1, "):
        NumbaBackend().compile(program, other, room(program, n_tokens=8))


def test_a_failure_of_numba_is_our_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(topic: str, kind: int) -> None:
        raise LoweringError("no such instruction")

    monkeypatch.setattr(kernels, "compiled", fail)
    with pytest.raises(BackendError, match="no such instruction"):
        Compiled("F16")


def test_ops_it_lacks_are_listed_together() -> None:
    program, weights = decoder("Q4_K")

    @dataclasses.dataclass
    class Wonder:
        out: str

    strange: Any = Wonder(program.ops[0].out)
    rest = (dataclasses.replace(op, activation="swish") if isinstance(op, Glu) else op for op in program.ops[1:])
    program = dataclasses.replace(program, ops=(strange, *rest))
    with pytest.raises(UnsupportedModelError, match=r"ops: Glu with swish, Wonder$"):
        NumbaBackend().compile(program, weights, room(program, n_tokens=8))


def test_a_field_that_no_kernel_heeds_must_have_its_default() -> None:
    @dataclasses.dataclass(frozen=True)
    class Prouder(Add):
        pride: int = 0

    program, _ = decoder("Q4_K")
    adds = [op for op in program.ops if isinstance(op, Add)]
    support._FIELDS[Prouder] = support._FIELDS[Add]
    try:
        for pride, expected in ((0, []), (1, ["Prouder with pride"])):
            ops = tuple(Prouder(op.out, op.a, op.b, pride) if op in adds else op for op in program.ops)
            assert support.lacking(dataclasses.replace(program, ops=ops)) == expected
    finally:
        del support._FIELDS[Prouder]


def test_a_part_of_a_matrix_is_refused() -> None:
    program, _ = decoder("Q4_K")
    shapes = {name: (a[0], a[1] + 1) if len(a) == 2 else a for name, a in program.weights.items()}
    assert support.lacking(dataclasses.replace(program, weights=shapes)) == ["MatMul with a part of a matrix"]


def test_more_pages_than_memory_is_our_error() -> None:
    program, weights = decoder("F16")
    with pytest.raises(OutOfMemoryError):
        NumbaBackend().compile(program, weights, CompileOptions((2**45, 2**45), 8))


@pytest.mark.parametrize(
    ("tokens", "start", "pages", "wanted", "words"),
    [
        ([N_VOCAB], 0, [0], [0], "a token is not from 0 to 98"),
        ([-1], 0, [0], [0], "a token is not from 0 to 98"),
        ([1], 0, [0], [1], "a row is not from 0 to 0"),
        ([], 0, [0], [], "0 tokens in 0 rows"),
        ([1] * 17, 0, [0, 1], [], "17 tokens in 17 rows, of at most 16"),
        ([1], -1, [0], [0], "at position -1"),
        ([1], 0, [1], [0], "needs pages from 0 to 0"),
        ([1], 0, [-1], [0], "needs pages from 0 to 0"),
        ([1], 16, [0], [0], "needs pages from 0 to 0"),
    ],
)
def test_impossible_batches_are_refused(
    tokens: list[int], start: int, pages: list[int], wanted: list[int], words: str
) -> None:
    compiled = Compiled("F16", n=16)
    segment = Segment(start, len(tokens), [np.asarray(pages, np.int32)] * 2)
    batch = Batch(np.asarray(tokens, np.int32), [segment], np.asarray(wanted, np.int32))
    with pytest.raises(ArgumentError, match=words):
        compiled.executable.step(batch)
    one_table = Segment(0, 1, [np.zeros(1, np.int32)])
    with pytest.raises(ArgumentError, match="1 page tables for 2 groups"):
        compiled.executable.step(Batch(np.zeros(1, np.int32), [one_table], np.zeros(0, np.int32)))


def test_pages_and_groups_must_exist() -> None:
    executable = Compiled("F16", n=16).executable
    for call in (
        lambda: executable.copy_pages(0, [(0, 1)]),
        lambda: executable.copy_pages(2, [(0, 0)]),
        lambda: executable.rotate_keys(0, [-1], 5),
        lambda: executable.copy_states([(0, 1)]),
    ):
        with pytest.raises(ArgumentError, match=r"there is no|is not from 0 to 0"):
            call()
