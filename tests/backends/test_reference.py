"""What only the reference backend promises."""

import dataclasses
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import quants

from edgellm import dtypes
from edgellm.architectures import build
from edgellm.backends.base import Batch, CompileOptions, Segment, Weight
from edgellm.backends.reference import ReferenceBackend, ReferenceExecutable
from edgellm.errors import ArgumentError, OutOfMemoryError, UnsupportedModelError
from edgellm.program import Program
from tests.support import conformance
from tests.support.run import linear_table, options_for, run_tokens

TOKENS = conformance.tokens()


def compiled(name: str, **options: Any) -> tuple[ReferenceExecutable, Program]:
    recipe = conformance.recipe(name, lean=True)
    program = build(recipe.metadata, recipe.tensors)
    given = dataclasses.replace(options_for(program, 48), **options)
    return ReferenceBackend().compile(program, recipe.weights(), given), program


@pytest.mark.parametrize("name", ["llama-dense", "gemma3-dense"])
def test_what_lies_in_unused_pages_never_matters(name: str) -> None:
    clean, program = compiled(name)
    poisoned, _ = compiled(name)
    for pages in poisoned._pages.values():
        pages.keys[:] = np.nan
        pages.values[:] = np.nan
    for chunk in (None, 5):
        found = run_tokens(poisoned, program, TOKENS, chunk)
        assert np.isfinite(found).all()
        np.testing.assert_array_equal(found, run_tokens(clean, program, TOKENS, chunk))


@pytest.mark.parametrize("name", ["Q8_0", "Q4_0", "Q5_1", "F16", "BF16"])
def test_quantized_weights_mean_what_gguf_py_says(name: str) -> None:
    recipe = conformance.recipe("qwen3-dense", lean=True)
    program = build(recipe.metadata, recipe.tensors)
    dtype = dtypes.by_name(name)
    kind = gguf.GGMLQuantizationType(dtype.id)
    weights, exact = recipe.weights(), recipe.weights()
    for tensor, shape in recipe.tensors.items():
        if len(shape) == 2:
            data = np.ascontiguousarray(quants.quantize(recipe.array(tensor), kind)).view(np.uint8)
            weights[tensor] = Weight(dtype, shape, memoryview(data).cast("B", (data.size,)))
            rounded = quants.dequantize(data.reshape(shape[1], -1), kind)
            exact[tensor] = conformance.as_weight(rounded.astype(np.float32).reshape(shape[::-1]))
    options = options_for(program, 40)
    found, expected = (
        run_tokens(ReferenceBackend().compile(program, w, options), program, TOKENS) for w in (weights, exact)
    )
    np.testing.assert_array_equal(found, expected)
    assert not np.array_equal(found, run_tokens(compiled("qwen3-dense")[0], program, TOKENS))


def test_types_it_cannot_read_are_listed_together() -> None:
    recipe = conformance.recipe("llama-dense", lean=True)
    program = build(recipe.metadata, recipe.tensors)
    weights = recipe.weights()
    for tensor, kind in (("output.weight", "Q8_1"), ("token_embd.weight", "Q8_K"), ("blk.0.ffn_up.weight", "Q8_1")):
        weights[tensor] = dataclasses.replace(weights[tensor], dtype=dtypes.by_name(kind))
    with pytest.raises(UnsupportedModelError, match="Q8_1, Q8_K"):
        ReferenceBackend().compile(program, weights, options_for(program, 8))


def test_more_pages_than_memory_is_our_error() -> None:
    with pytest.raises(OutOfMemoryError):
        compiled("llama-dense", n_pages=(2**45,))


def test_one_page_count_is_needed_per_group_of_layers() -> None:
    with pytest.raises(ArgumentError, match="1 page counts for 2 groups"):
        compiled("gemma3-dense", n_pages=(4,))


@pytest.mark.parametrize(
    ("tokens", "segments", "wanted", "words"),
    [
        ([1, 128], [(0, 2, [0])], [0], "a token is not from 0 to 127"),
        ([-1], [(0, 1, [0])], [0], "a token is not from 0 to 127"),
        ([1], [(0, 1, [0])], [1], "a row is not from 0 to 0"),
        ([1, 2], [(0, 1, [0])], [0], "2 tokens in 1 rows"),
        ([], [], [], "0 tokens in 0 rows"),
        ([1] * 49, [(0, 49, [0, 1, 2, 2])], [0], "of at most 48"),
        ([1], [(-1, 1, [0])], [0], "at position -1"),
        ([1], [(0, 1, [0]), (0, 0, [1])], [0], "a segment of 0 rows"),
        ([1], [(0, 1, [3])], [0], "needs pages from 0 to 2"),
        ([1], [(0, 1, [-1])], [0], "needs pages from 0 to 2"),
        ([1], [(16, 1, [0])], [0], "needs pages from 0 to 2"),
        ([1], [(16, 1, [-2, 0])], [0], "needs pages from 0 to 2"),
    ],
)
def test_impossible_batches_are_refused(
    tokens: list[int], segments: list[tuple[int, int, list[int]]], wanted: list[int], words: str
) -> None:
    executable, _ = compiled("llama-dense")
    parts = [Segment(start, n, [np.asarray(pages, np.int32)]) for start, n, pages in segments]
    with pytest.raises(ArgumentError) as caught:
        executable.step(Batch(np.asarray(tokens, np.int32), parts, np.asarray(wanted, np.int32)))
    assert words in str(caught.value)


def test_page_tables_and_pages_must_exist() -> None:
    executable, program = compiled("gemma3-dense")
    one = linear_table(program, 4)[:1]
    with pytest.raises(ArgumentError, match="1 page tables for 2 groups"):
        executable.step(Batch(TOKENS[:4], [Segment(0, 4, one)], np.zeros(1, np.int32)))
    with pytest.raises(ArgumentError, match="page 3 is not"):
        executable.copy_pages(0, [(0, 3)])
    with pytest.raises(ArgumentError, match="page -1 is not"):
        executable.rotate_keys(1, [-1], 4)


def test_numbers_out_of_range_become_infinite_without_a_warning() -> None:
    recipe = conformance.recipe("llama-dense", lean=True)
    program = build(recipe.metadata, recipe.tensors)
    huge = conformance.as_weight(recipe.array("blk.0.attn_k.weight") * np.float32(1e30))
    weights = recipe.weights() | {"blk.0.attn_k.weight": huge}
    options = CompileOptions((1,), 8, "f16")
    logits = run_tokens(ReferenceBackend().compile(program, weights, options), program, TOKENS[:4])
    assert np.isnan(logits).any()
