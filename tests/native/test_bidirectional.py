"""Attention to both sides: the native kernels against the reference, over several spans and pages."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from edgellm.backends.base import Backend, Batch, CompileOptions, Segment, Weight
from edgellm.backends.native import NativeBackend
from edgellm.backends.reference import ReferenceBackend
from edgellm.errors import ArgumentError
from edgellm.program import KVState, Program, ProgramBuilder
from edgellm.program.verify import verify
from tests.support.native import Floats, vector

N_EMBD, N_VOCAB, HEADS, HEADS_KV, WIDTH = 48, 50, 4, 2, 20
LENGTHS = (1, 15, 17, 300, 613)


def encoder(window: int | None, alibi: float) -> tuple[Program, dict[str, Weight]]:
    """Return one layer that sees both sides, `window` // 2 of each."""
    b = ProgramBuilder("encoder", {})
    x = b.embed("embed", N_EMBD, N_VOCAB)
    q, k, v = (b.matmul(x, n, h * WIDTH) for n, h in (("q", HEADS), ("k", HEADS_KV), ("v", HEADS_KV)))
    state = KVState("kv", HEADS_KV, WIDTH, WIDTH, window, causal=False)
    y = b.attention(q, k, v, state, HEADS, 0.3, alibi=alibi)
    y = b.embedding(b.matmul(b.select_rows(y), "out", 24))
    program = b.build(y, n_embd=N_EMBD, n_ctx_train=1024, n_vocab=N_VOCAB)
    rng = np.random.default_rng(5)
    weights = {name: vector(rng.standard_normal(shape[::-1]) * 0.3) for name, shape in program.weights.items()}
    verify(program, weights)
    return program, weights


def run(
    backend: Backend, window: int | None, alibi: float, lengths: tuple[int, ...], threads: int = 1, kv: str = "f32"
) -> list[Floats]:
    """Return the vectors of texts of these lengths, all in one step."""
    program, weights = encoder(window, alibi)
    pages = [-(-n // 16) for n in lengths]
    ends = np.cumsum(pages)
    options = CompileOptions((int(ends[-1]),), sum(lengths), kv, threads)
    executable = backend.compile(program, weights, options)
    segments = [
        Segment(0, n, [np.arange(end - count, end, dtype=np.int32)])
        for n, count, end in zip(lengths, pages, ends, strict=True)
    ]
    tokens = np.concatenate([np.random.default_rng(n).integers(0, N_VOCAB, n) for n in lengths]).astype(np.int32)
    found = executable.step(Batch(tokens, segments, np.arange(len(tokens), dtype=np.int32), embed=True))
    executable.close()
    return np.split(found, np.cumsum(lengths)[:-1])


@pytest.mark.parametrize(("window", "alibi"), list(product((None, 2, 33, 700), (0.0, 8.0))))
def test_both_sides_are_seen_as_the_reference_says(isa: str, window: int | None, alibi: float) -> None:
    expected = run(ReferenceBackend(), window, alibi, LENGTHS)
    found = run(NativeBackend(isa), window, alibi, LENGTHS)
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("window", "alibi"), [(None, 8.0), (33, 0.0)])
@pytest.mark.parametrize(("kv", "tolerance"), [("f16", 2e-5), ("q8_0", 1e-2)])
def test_smaller_kinds_of_keys_and_values_agree(
    isa: str, kv: str, tolerance: float, window: int | None, alibi: float
) -> None:
    # With q8_0 the native kernels round the queries, too.
    expected = run(ReferenceBackend(), window, alibi, LENGTHS, kv=kv)
    found = run(NativeBackend(isa), window, alibi, LENGTHS, kv=kv)
    alone = run(NativeBackend(isa), window, alibi, LENGTHS[3:4], 2, kv)
    np.testing.assert_array_equal(alone[0], found[3])
    for mine, theirs in zip(found, expected, strict=True):
        assert np.abs(mine - theirs).max() <= tolerance * np.abs(theirs).max()


@pytest.mark.parametrize("window", [None, 33])
def test_threads_and_neighbours_change_nothing(isa: str, window: int | None) -> None:
    together = run(NativeBackend(isa), window, 8.0, LENGTHS)
    for i, n in enumerate(LENGTHS):
        for threads in (1, 2, 3):
            np.testing.assert_array_equal(run(NativeBackend(isa), window, 8.0, (n,), threads)[0], together[i])


def test_every_instruction_set_gives_the_same_bits(isa: str) -> None:
    best = run(NativeBackend(), 33, 8.0, LENGTHS)
    for mine, theirs in zip(run(NativeBackend(isa), 33, 8.0, LENGTHS), best, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_step_for_embeddings_has_no_room_for_logits(isa: str) -> None:
    program, weights = encoder(None, 0.0)
    executable = NativeBackend(isa).compile(program, weights, CompileOptions((1,), 4, "f32"))
    core = executable._core
    given = [np.zeros(1, np.int32), np.array([(0, 1)], np.int32), np.zeros(1, np.int32), np.array([0, 1], np.int64)]
    given.append(np.zeros(1, np.int32))
    core.step(*given, np.zeros(24, np.float32), 1, np.zeros(1, np.int32), True)
    with pytest.raises(ValueError, match="logits is too short"):
        core.step(*given, np.zeros(23, np.float32), 1, np.zeros(1, np.int32), True)


@pytest.mark.parametrize(
    ("embedding", "message"), [(99, "no op 99"), (-2, "no op -2"), (0, "does not make embeddings")]
)
def test_the_op_that_makes_embeddings_is_checked(core, isa: str, embedding: int, message: str) -> None:
    from edgellm.backends.lowering import lower

    low = lower(*encoder(None, 0.0))
    with pytest.raises(ValueError, match=message):
        core.Executor(
            *(isa, low.ops, low.weights, low.slots, low.states, low.ropes, np.ones(1, np.int32), 4, N_VOCAB, 1),
            *(low.recurrent, 0, embedding),
        )


def test_logits_before_the_embeddings_are_refused(core, isa: str) -> None:
    from edgellm.backends.lowering import lower

    low = lower(*encoder(None, 0.0))
    low.ops[-1]["out"] = -1
    with pytest.raises(ValueError, match="logits before the embeddings"):
        core.Executor(
            *(isa, low.ops, low.weights, low.slots, low.states, low.ropes, np.ones(1, np.int32), 4, N_VOCAB, 1),
            *(low.recurrent, 0, low.embedding),
        )


def test_a_model_without_embeddings_says_so(isa: str) -> None:
    b = ProgramBuilder("plain", {})
    logits = b.matmul(b.select_rows(b.embed("embed", N_EMBD, N_VOCAB)), "out", N_VOCAB)
    program = b.build(logits, n_embd=N_EMBD, n_ctx_train=64)
    weights = {name: vector(np.zeros(shape[::-1])) for name, shape in program.weights.items()}
    executable = NativeBackend(isa).compile(program, weights, CompileOptions((), 4, "f32"))
    with pytest.raises(ArgumentError, match="declares no embeddings"):
        executable.step(Batch(np.zeros(1, np.int32), [Segment(0, 1, [])], np.zeros(1, np.int32), embed=True))
