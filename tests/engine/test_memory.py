"""The memory plan: what fits, and what is said when something does not."""

from __future__ import annotations

import re

import pytest

from edgellm.engine.memory import MemoryModel, logits_rows, parse_size, plan_memory
from edgellm.errors import ArgumentError, OutOfMemoryError
from edgellm.program import KVState, Program

GB = 10**9


def program(*windows: int | None, n_ctx_train: int = 160_000) -> Program:
    """A program of which only the sizes count: per layer 8 heads of 128."""
    states = {f"l{i}": KVState(f"l{i}", 8, 128, 128, window) for i, window in enumerate(windows)}
    return Program("test", 32_000, 4096, n_ctx_train, (), {}, {}, states)


def model(*windows: int | None, weights: int = 4 * GB, **more: int) -> MemoryModel:
    return MemoryModel(program(*windows or [None] * 32, **more), weights, "f16", 20_000)


def test_the_bytes_of_one_token_are_those_of_all_layers():
    plan = model().plan(4096, 512)
    assert plan.kv_per_token == 32 * 8 * (128 + 128) * 2
    assert plan.n_pages == (4096 // 16 + 1,)
    assert plan.kv == plan.kv_per_token * 16 * 257
    assert plan.total == plan.weights + plan.kv + plan.scratch


def test_f32_keys_take_twice_the_bytes():
    sizes = MemoryModel(program(None), 0, "f32", 0)
    assert sizes.plan(16, 1).kv_per_token == 8 * 256 * 4


def test_a_long_trained_context_is_cut_to_half_of_what_is_left():
    plan = plan_memory(model(), n_ctx=None, n_batch=512, max_memory=None, available=12 * GB)
    assert 16_384 < plan.n_ctx < 160_000
    assert plan.kv + plan.scratch <= 4 * GB
    assert model().plan(plan.n_ctx + 16, 512).total > 8 * GB


def test_the_trained_context_is_the_default_where_it_fits():
    plan = plan_memory(model(n_ctx_train=8192), n_ctx=None, n_batch=512, max_memory=None, available=64 * GB)
    assert plan.n_ctx == 8192


@pytest.mark.parametrize(("trained", "expected"), [(100, 100), (8192, 512)])
def test_a_small_context_is_left_however_little_memory_there_is(trained, expected):
    plan = plan_memory(model(n_ctx_train=trained), n_ctx=None, n_batch=512, max_memory=None, available=1 * GB)
    assert plan.n_ctx == expected


def test_a_context_that_cannot_be_had_is_refused_with_the_largest_that_fits():
    with pytest.raises(OutOfMemoryError) as caught:
        plan_memory(model(), n_ctx=160_000, n_batch=512, max_memory=None, available=8 * GB)
    message = str(caught.value)
    assert "n_ctx=160000" in message
    assert str(8 * GB) in message
    largest = int(re.search(r"largest n_ctx that fits is (\d+)", message)[1])
    assert plan_memory(model(), n_ctx=largest, n_batch=512, max_memory=None, available=8 * GB).n_ctx == largest
    with pytest.raises(OutOfMemoryError):
        plan_memory(model(), n_ctx=largest + 16, n_batch=512, max_memory=None, available=8 * GB)


def test_max_memory_sets_the_context():
    plan = plan_memory(model(), n_ctx=None, n_batch=512, max_memory=6 * GB)
    assert plan.total <= 6 * GB < model().plan(plan.n_ctx + 16, 512).total


def test_max_memory_shrinks_the_batch_for_a_context_that_was_asked_for():
    whole = model().plan(8192, 512).total
    plan = plan_memory(model(), n_ctx=8192, n_batch=512, max_memory=whole - 10**6)
    assert (plan.n_ctx, plan.n_batch) == (8192, 256)
    assert plan.total <= whole - 10**6


def test_max_memory_below_the_weights_is_refused():
    with pytest.raises(OutOfMemoryError, match="no context fits"):
        plan_memory(model(), n_ctx=None, n_batch=512, max_memory=4 * GB)


def test_sliding_windows_need_few_pages():
    plan = model(None, 512).plan(100_000, 512)
    assert plan.n_pages[0] == 6251
    assert plan.n_pages[1] == 8 * (1024 // 16 + 2)
    short = model(None, 512).plan(64, 512)
    assert short.n_pages == (5, 5)


def test_the_logits_of_a_step_are_bounded():
    assert logits_rows(262_144, 512) == 64
    assert logits_rows(128, 512) == 512
    assert logits_rows(10**9, 512) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3GB", 3 * GB),
        ("3 gb", 3 * GB),
        ("1.5G", 1_500_000_000),
        ("2GiB", 2**31),
        ("512MiB", 2**29),
        ("1000", 1000),
        (7, 7),
        (None, None),
    ],
)
def test_sizes_are_read(text, expected):
    assert parse_size(text, "max_memory") == expected


@pytest.mark.parametrize("text", ["", "GB", "3XB", "-1GB", "3 G B x", 0, -5, 1.5, True, "0", "I"])
def test_other_sizes_are_refused_by_name(text):
    with pytest.raises(ArgumentError, match=re.escape(f"not {text!r}")):
        parse_size(text, "max_memory")
