"""The promise of equal bits: nothing but the tokens before it changes a row's logits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from edgellm.backends.base import PAGE, Backend, Executable, KVType
from edgellm.program import Program
from tests.support.native import N_VOCAB, TYPES, Floats, available, decoder, feed, room, vector

N = 40
ROOM = 400
KV_TYPES: tuple[KVType, ...] = ("f16", "q8_0")  # f32 goes through the same code as f16


def sequence(n: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.random.default_rng(seed).integers(0, N_VOCAB, n).astype(np.int32)


class Compiled:
    """A decoder on one instruction set."""

    def __init__(self, kind: str, isa: str, kv_type: KVType = "f16", threads: int = 1, n: int = ROOM) -> None:
        from edgellm.backends.native import NativeBackend

        self.program: Program
        self.program, weights = decoder(kind)
        options = room(self.program, n_tokens=n, kv_type=kv_type, threads=threads)
        self.executable: Executable = NativeBackend(isa).compile(self.program, weights, options)

    def run(self, *sequences: np.ndarray[Any, np.dtype[np.int32]], **how: Any) -> list[Floats]:
        return feed(self.executable, self.program, sequences, **how)


@pytest.fixture(scope="module", params=TYPES)
def kind(request: pytest.FixtureRequest) -> str:
    """The name of each tensor type with kernels."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def model(kind: str, isa: str) -> Iterator[Compiled]:
    compiled = Compiled(kind, isa)
    yield compiled
    compiled.executable.close()


def test_logits_look_like_logits(model: Compiled) -> None:
    # Equal bits mean nothing where everything is zero, infinite or the same.
    (logits,) = model.run(sequence(N))
    assert np.isfinite(logits).all()
    assert 0.05 < np.std(logits) < 100.0
    assert len(np.unique(logits)) > 0.9 * logits.size


def test_chunks_of_a_prompt_do_not_matter(model: Compiled) -> None:
    (whole,) = model.run(sequence(N))
    for chunk in (1, 2, 3, 4, 7, 16, 33):
        (parts,) = model.run(sequence(N), chunk=chunk)
        np.testing.assert_array_equal(parts, whole)


@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_threads_do_not_matter(kind: str, isa: str, kv_type: KVType) -> None:
    results = []
    for threads in (1, 2, 3, 8):
        compiled = Compiled(kind, isa, kv_type, threads)
        results.append(compiled.run(sequence(N))[0])
        if threads == 3:
            results.append(compiled.run(sequence(N), chunk=7)[0])
        compiled.executable.close()
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_the_instruction_set_does_not_matter(kind: str, core: Any, kv_type: KVType) -> None:
    results = []
    for name in available():
        compiled = Compiled(kind, name, kv_type)
        results += [compiled.run(sequence(N))[0], compiled.run(sequence(N), chunk=1)[0]]
        compiled.executable.close()
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_neighbours_and_page_numbers_do_not_matter(model: Compiled) -> None:
    lengths = (N, 1, 33, 16, 5)
    sequences = [sequence(n, seed) for seed, n in enumerate(lengths)]
    alone = [model.run(s)[0] for s in sequences]
    rng = np.random.default_rng(1)
    counts = [-(-n // PAGE) for n in lengths]
    scattered = np.split(rng.permutation(ROOM // PAGE)[: sum(counts)], np.cumsum(counts)[:-1])
    for chunk in (None, 16):
        for pages in (None, scattered):
            for found, expected in zip(model.run(*sequences, chunk=chunk, pages=pages), alone, strict=True):
                np.testing.assert_array_equal(found, expected)


def test_a_prefix_in_another_order_of_steps_does_not_matter(model: Compiled) -> None:
    # The pages of a prefix are shared by two sequences that then go on side by side.
    prefix, ends = sequence(32), [sequence(20, 7), sequence(9, 8)]
    expected = [model.run(np.concatenate([prefix, end]))[0][32:] for end in ends]
    model.run(prefix, pages=[[9, 4]])
    found = model.run(*ends, start=32, pages=[[9, 4, 1, 2], [9, 4, 3]])
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_contexts_of_many_spans_do_not_depend_on_who_walks_them(isa: str, kv_type: KVType) -> None:
    n = 290 if isa == "generic" else 1050
    one, many = (Compiled("Q4_K", isa, kv_type, threads, n) for threads in (1, 5))
    (expected,) = one.run(sequence(n))
    for chunk in (None, 100):
        np.testing.assert_array_equal(many.run(sequence(n), chunk=chunk)[0], expected)
    for compiled in (one, many):
        last = compiled.run(sequence(n)[-20:], start=n - 20, chunk=1, pages=[np.arange(-(-n // PAGE))])[0]
        np.testing.assert_array_equal(last, expected[-20:])
        compiled.executable.close()


def test_what_earlier_sequences_left_behind_does_not_matter(model: Compiled) -> None:
    (expected,) = model.run(sequence(N))
    model.run(sequence(100, 3))
    np.testing.assert_array_equal(model.run(sequence(N))[0], expected)
    np.testing.assert_array_equal(model.run(sequence(N), pages=[np.arange(20, 23)])[0], expected)


def test_copied_pages_are_the_pages(model: Compiled) -> None:
    tokens = sequence(N)
    (expected,) = model.run(tokens)
    for group in range(len(model.program.windows)):
        model.executable.copy_pages(group, [(0, 20), (1, 21)])
    model.run(sequence(N, 9))
    (found,) = model.run(tokens[32:], start=32, pages=[[20, 21, 22]])
    np.testing.assert_array_equal(found, expected[32:])


def test_turned_keys_are_equal_on_every_instruction_set(core: Any) -> None:
    results: dict[str, Floats] = {}
    for name in available():
        for kv_type in KV_TYPES:
            compiled = Compiled("F16", name, kv_type, 2)
            compiled.run(sequence(48))
            for group in range(len(compiled.program.windows)):
                compiled.executable.rotate_keys(group, [1, 2], -16)
            (found,) = compiled.run(sequence(10, 4), start=48, pages=[[0, 1, 2, 3]])
            compiled.executable.close()
            np.testing.assert_array_equal(found, results.setdefault(kv_type, found))


def test_a_token_that_is_not_a_number_spoils_what_follows_and_nothing_before(isa: str) -> None:
    from edgellm.backends.native import NativeBackend

    program, weights = decoder("Q4_K")
    table = np.random.default_rng(3).standard_normal((N_VOCAB, 256)).astype(np.float32)
    table[50, 100] = np.nan
    backend: Backend = NativeBackend(isa)
    executable = backend.compile(program, weights | {"embed": vector(table)}, room(program, n_tokens=ROOM, threads=2))
    tokens = np.where(sequence(N) == 50, 51, sequence(N)).astype(np.int32)
    tokens[25] = 50
    (logits,) = feed(executable, program, [tokens])
    assert np.isfinite(logits[:25]).all()
    assert np.isnan(logits[25:]).all()
    executable.close()
