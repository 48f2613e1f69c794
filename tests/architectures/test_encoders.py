"""Encoders against vectors that llama.cpp gives for the same weights at float32, token by token without pooling.

Where they use GELU, llama.cpp looks it up in a table of half-precision numbers, which alone is worth 1e-7.  So the
comparison is in two parts: our meaning with such a table against llama.cpp, and the backends against our meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from edgellm.architectures import build
from edgellm.backends import reference_rows
from edgellm.backends.base import Backend, Batch, Segment
from edgellm.errors import ArgumentError, ModelFormatError, UnsupportedModelError
from edgellm.program import Program
from edgellm.program.ops import Attention
from edgellm.program.verify import verify
from tests.support import conformance
from tests.support.run import linear_table, options_for

DATA = Path(__file__).parents[1] / "data" / "encoders"
NAMES = sorted(path.stem for path in (DATA / "recipes").glob("*.json"))
TOKENS = conformance.golden("_tokens", DATA).astype(np.int32)
Floats = npt.NDArray[np.float32]


def vectors(
    backend: Backend, name: str, tokens: npt.NDArray[np.int32] = TOKENS, *, lean: bool = False, threads: int = 1
) -> Floats:
    """Return the vectors of one text, ``[len(tokens), width]``."""
    return several(backend, name, [tokens], lean=lean, threads=threads)[0]


def several(
    backend: Backend, name: str, texts: list[npt.NDArray[np.int32]], *, lean: bool = False, threads: int = 1
) -> list[Floats]:
    """Return the vectors of texts that share a step."""
    program, weights = declared(name, lean=lean)
    pages = np.cumsum([0, *(-(-len(ids) // 16) for ids in texts)])
    executable = backend.compile(program, weights, options_for(program, 16 * int(pages[-1]), threads=threads))
    tables = [np.arange(a, b, dtype=np.int32) for a, b in pairwise(pages)]
    segments = [Segment(0, len(ids), [t] * len(program.windows)) for ids, t in zip(texts, tables, strict=True)]
    tokens = np.concatenate(texts)
    found = executable.step(Batch(tokens, segments, np.arange(len(tokens), dtype=np.int32), embed=True))
    executable.close()
    return np.split(found, np.cumsum([len(ids) for ids in texts])[:-1])


def declared(name: str, *, lean: bool = False) -> tuple[Program, dict[str, conformance.Weight]]:
    """Return a verified program and its weights."""
    recipe = conformance.recipe(name, lean=lean, folder=DATA)
    program, weights = build(recipe.metadata, recipe.tensors), recipe.weights()
    verify(program, weights)
    return program, weights


def from_a_table(gelu: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]) -> Callable[..., Floats]:
    """Return `gelu` as llama.cpp has it: from half precision to half precision, within ±10."""

    def looked_up(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        found = gelu(x.astype(np.float16).astype(np.float64)).astype(np.float16).astype(np.float64)
        return np.where(x <= -10.0, 0.0, np.where(x >= 10.0, x, found))

    return looked_up


@pytest.mark.parametrize("lean", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_vectors_match_llama_cpp(
    name: str, lean: bool, backends: dict[str, Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = conformance.golden(name, DATA)
    exact = vectors(backends["reference"], name, lean=lean)
    assert conformance.nmse(exact, expected) < 1e-6
    monkeypatch.setitem(reference_rows.ACTIVATIONS, "gelu", from_a_table(reference_rows.ACTIVATIONS["gelu"]))
    assert conformance.nmse(vectors(backends["reference"], name, lean=lean), expected) < 1e-8
    assert conformance.nmse(vectors(backends["native"], name, lean=lean), exact) < 1e-11


@pytest.mark.parametrize("name", NAMES)
def test_every_token_sees_both_sides(name: str, backends: dict[str, Backend]) -> None:
    changed = TOKENS.copy()
    changed[20] += 1
    before, after = vectors(backends["native"], name), vectors(backends["native"], name, changed)
    differ = np.any(before != after, axis=1)
    assert differ[15:26].all()
    windows = {s.window for s in declared(name)[0].states.values()}
    assert differ.all() or windows != {None}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_a_text_does_not_know_its_neighbours(name: str, threads: int, backends: dict[str, Backend]) -> None:
    texts = [TOKENS[:40], TOKENS[10:11], TOKENS[3:36][::-1].copy(), TOKENS[:17]]
    alone = [vectors(backends["native"], name, ids) for ids in texts]
    for found, expected in zip(several(backends["native"], name, texts, threads=threads), alone, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_windows_reach_half_to_both_sides() -> None:
    for name, whole in (("modern-bert", (0, 3)), ("gemma-embedding", (5,))):
        program = declared(name)[0]
        states = [program.states[f"blk.{i}.kv"] for i in range(len(program.states))]
        assert [i for i, s in enumerate(states) if s.window is None] == list(whole)
        assert {s.window for s in states} == {None, 12}
        assert not program.causal
        assert not program.generates


def test_one_layer_with_a_window_hides_what_is_further_away(backends: dict[str, Backend]) -> None:
    recipe = conformance.recipe("gemma-embedding", folder=DATA)
    recipe.metadata["gemma-embedding.block_count"] = 1
    tensors = {k: s for k, s in recipe.tensors.items() if not k.startswith("blk.") or k.startswith("blk.0.")}
    program, weights = build(recipe.metadata, tensors), {k: v for k, v in recipe.weights().items() if k in tensors}
    changed = TOKENS.copy()
    changed[20] += 1
    for name in ("reference", "native"):
        executable = backends[name].compile(program, weights, options_for(program, 40))
        segment, rows = Segment(0, 40, linear_table(program, 40)), np.arange(40, dtype=np.int32)
        before, after = (executable.step(Batch(ids, [segment], rows, embed=True)) for ids in (TOKENS, changed))
        assert np.flatnonzero(np.any(before != after, axis=1)).tolist() == list(range(14, 27))


def test_a_file_may_ask_for_causal_attention() -> None:
    recipe = conformance.recipe("bert", folder=DATA)
    assert build(recipe.metadata | {"bert.attention.causal": True}, recipe.tensors).causal


def test_scores_are_made_of_the_first_row_where_the_file_ranks(backends: dict[str, Backend]) -> None:
    recipe = conformance.recipe("bert", folder=DATA)
    head = {"cls.weight": (64, 64), "cls.bias": (64,), "cls.output.weight": (64, 3), "cls.output.bias": (3,)}
    tensors = recipe.tensors | head
    plain = build(recipe.metadata, tensors)
    assert plain.widths[plain.embedding or ""] == 64
    program = build(recipe.metadata | {"bert.pooling_type": 4}, tensors)
    ranked = conformance.Recipe(recipe.metadata, recipe.kinds, tensors)
    weights = ranked.weights()
    verify(plain, weights)
    verify(program, weights)
    expected = np.tanh(
        vectors(backends["reference"], "bert")[:1] @ ranked.array("cls.weight").T + ranked.array("cls.bias")
    )
    expected = expected @ ranked.array("cls.output.weight").T + ranked.array("cls.output.bias")
    for name in ("reference", "native"):
        executable = backends[name].compile(program, weights, options_for(program, 40))
        segment = Segment(0, 40, linear_table(program, 40))
        found = executable.step(Batch(TOKENS, [segment], np.zeros(1, np.int32), embed=True))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_the_two_matrices_behind_embeddinggemma_take_part() -> None:
    recipe = conformance.recipe("gemma-embedding", folder=DATA)
    tensors = recipe.tensors | {"dense_2.weight": (64, 96), "dense_3.weight": (96, 48)}
    program = build(recipe.metadata, tensors)
    assert program.widths[program.embedding or ""] == 48


def test_an_encoder_has_no_logits_and_a_program_without_embeddings_says_so(backends: dict[str, Backend]) -> None:
    program, weights = declared("bert")
    for name in ("reference", "native"):
        executable = backends[name].compile(program, weights, options_for(program, 40))
        batch = Batch(TOKENS[:1], [Segment(0, 1, linear_table(program, 1))], np.zeros(1, np.int32))
        with pytest.raises(ArgumentError, match="embeddings only, no logits"):
            executable.step(batch)


@pytest.mark.parametrize("name", NAMES)
def test_numba_says_what_it_lacks(name: str, backends: dict[str, Backend]) -> None:
    program, weights = declared(name)
    with pytest.raises(UnsupportedModelError, match=r"numba.*KVState with causal"):
        backends["numba"].compile(program, weights, options_for(program, 40))


@pytest.mark.parametrize(
    ("name", "key", "value", "error", "message"),
    [
        ("bert", "pooling_type", 9, UnsupportedModelError, r"bert\.pooling_type = 9"),
        ("bert", "pooling_type", "mean", ModelFormatError, r"bert\.pooling_type"),
        ("nomic-bert", "moe_every_n_layers", 2, UnsupportedModelError, "moe_every_n_layers = 2"),
        ("bert", "attention.causal", 0, ModelFormatError, "must be a boolean"),
    ],
)
def test_what_is_not_there_is_refused(name: str, key: str, value: object, error: type[Exception], message: str) -> None:
    recipe = conformance.recipe(name, folder=DATA)
    with pytest.raises(error, match=message):
        build(recipe.metadata | {f"{name}.{key}": value}, recipe.tensors)


def test_pooling_is_what_the_file_says() -> None:
    recipe = conformance.recipe("bert", folder=DATA)
    said = [build(recipe.metadata | {"bert.pooling_type": n}, recipe.tensors).pooling for n in range(4)]
    assert said == ["none", "mean", "cls", "last"]
    assert build(recipe.metadata | {"bert.pooling_type": 2**32 - 1}, recipe.tensors).pooling is None
    del recipe.metadata["bert.pooling_type"]
    assert build(recipe.metadata, recipe.tensors).pooling is None


def test_attention_says_that_it_is_not_causal() -> None:
    program = declared("jina-bert-v2")[0]
    assert {op.alibi for op in program.ops if isinstance(op, Attention)} == {8.0}
    assert not any(state.causal for state in program.states.values())
