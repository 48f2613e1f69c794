"""Nonsense in any number of a description or a step is refused or harmless: never a crash, never a wrong byte."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from edgellm.backends.lowering import KINDS
from edgellm.program.ops import Add
from tests.support.hostile import N_PAGES, Description, Step
from tests.support.native import N_EMBD, N_VOCAB

EXPECTED = (ValueError, MemoryError)
N_DESCRIPTIONS, N_STEPS = 2400, 2000


@pytest.fixture
def executor(core: Any, isa: str) -> Any:
    """A sound executor."""
    return Description.of("Q4_K", isa).make(core)


def test_a_sound_description_and_step_work(executor: Any) -> None:
    assert np.isfinite(Step().run(executor)).all()


@pytest.mark.parametrize("kind", ["F32", "Q4_K", "mixture F32", "mixture Q4_K"])
def test_spoiled_descriptions(core: Any, kind: str) -> None:
    rng = np.random.default_rng(20)
    isas = core.cpu_info()["available"]
    counts: Counter[str] = Counter()
    for i in range(N_DESCRIPTIONS // 4):
        description = Description.of(kind, isas[i % len(isas)])
        for _ in range(1 if rng.random() < 0.6 else int(rng.integers(2, 4))):
            description.spoil(rng)
        try:
            executor = description.make(core)
            Step().run(executor)
            executor.copy_pages(0, np.array([0, 1], np.int32))
            executor.rotate_keys(1, np.array([0, 1], np.int32), 7)
            counts["worked"] += 1
        except EXPECTED as error:
            counts[type(error).__name__ if str(error) else "silent"] += 1
        except Exception as error:
            pytest.fail(f"{type(error).__name__}: {error} for {description.spoiled}")
    # Mutations that are always refused, or never, would test little.
    assert counts["ValueError"] > 150
    assert counts["worked"] > 30
    assert not counts["silent"]


@pytest.mark.parametrize("size", [-1, 2, 2**20])
def test_fields_that_an_op_does_not_name_are_ignored(core: Any, isa: str, size: int) -> None:
    expected = Step().run(Description.of("Q4_K", isa).make(core))
    spoiled = Description.of("Q4_K", isa)
    additions = spoiled.ops["kind"] == KINDS[Add]
    assert additions.any()
    spoiled.ops["size"][additions] = size
    np.testing.assert_array_equal(Step().run(spoiled.make(core)), expected)


def test_spoiled_steps_leave_no_trace(executor: Any) -> None:
    rng = np.random.default_rng(21)
    expected = Step().run(executor)
    counts: Counter[str] = Counter()
    for i in range(N_STEPS // 3):
        step = Step()
        for _ in range(1 if rng.random() < 0.6 else int(rng.integers(2, 4))):
            step.spoil(rng)
        try:
            step.run(executor)
            counts["worked"] += 1
        except EXPECTED as error:
            counts[type(error).__name__ if str(error) else "silent"] += 1
        except Exception as error:
            pytest.fail(f"{type(error).__name__}: {error} for {step.spoiled}")
        if i % 50 == 0:
            np.testing.assert_array_equal(Step().run(executor), expected)
    assert counts["ValueError"] > 100
    assert counts["worked"] > 20
    assert not counts["silent"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tokens": np.array([N_VOCAB] * 30, np.int32)}, "token 99"),
        ({"tokens": np.array([-1] * 30, np.int32)}, "token -1"),
        ({"tokens": np.zeros(65, np.int32)}, "at most 64"),
        ({"tokens": np.zeros(0, np.int32)}, "0 rows"),
        ({"tokens": np.zeros(31, np.int32)}, "the segments have 30 rows"),
        ({"segments": np.array([(10, 30)], np.int32)}, "too short"),
        ({"segments": np.array([(-1, 25), (3, 5)], np.int32)}, "segment 0"),
        ({"segments": np.array([(2**31 - 1, 25), (3, 5)], np.int32)}, "segment 0"),
        ({"segments": np.array([(0, 25), (12, 5)], np.int32)}, "segment 1"),
        ({"segments": np.array([(0, 30), (3, 0)], np.int32)}, "segment 1"),
        ({"segments": np.array([(0, 35), (3, -5)], np.int32)}, "segment 1"),
        ({"tables": np.array([0, 1, 0, N_PAGES, 5, 4], np.int32)}, f"page {N_PAGES}"),
        ({"tables": np.array([0, -1, 0, 1, 5, 4], np.int32)}, "page -1"),
        ({"tables": np.zeros(0, np.int32)}, "too short"),
        ({"starts": np.array([0, 2, 4, 5], np.int64)}, "table_starts is too short"),
        ({"starts": np.array([0, 2, 4, 5, 7], np.int64)}, "too short"),
        ({"starts": np.array([0, 2, 1, 5, 6], np.int64)}, "too short"),
        ({"starts": np.array([-1, 2, 4, 5, 6], np.int64)}, "too short"),
        ({"wanted": np.array([0, 24, 30], np.int32)}, "wanted row 30"),
        ({"wanted": np.array([24, 0, 29], np.int32)}, "wanted row 0"),
        ({"wanted": np.array([0, 0, 29], np.int32)}, "wanted row 0"),
        ({"wanted": np.array([-1, 0, 29], np.int32)}, "wanted row -1"),
        ({"n_logits": 3 * N_VOCAB - 1}, "logits is too short"),
        ({"threads": 0}, "threads"),
        ({"threads": 257}, "threads"),
    ],
)
def test_bad_steps_are_named(executor: Any, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Step(**changes).run(executor)


def test_a_step_may_want_nothing(executor: Any) -> None:
    assert np.isnan(Step(wanted=np.zeros(0, np.int32)).run(executor)).all()
    assert Step(wanted=np.zeros(0, np.int32), n_logits=0).run(executor).size == 0


def test_only_the_wanted_logits_are_written(executor: Any) -> None:
    logits = Step(n_logits=5 * N_VOCAB).run(executor)
    assert np.isfinite(logits[: 3 * N_VOCAB]).all()
    assert np.isnan(logits[3 * N_VOCAB :]).all()


LOGITS, NO_WAIT = -1, 2
QUANTIZE, ATTENTION, ADD, SELECT = 1, 5, 6, 10


def first(description: Description, kind: int) -> int:
    return int(np.flatnonzero(description.ops["kind"] == kind)[0])


def test_ops_of_every_row_do_not_touch_the_logits(core: Any, isa: str) -> None:
    # The caller's array has the wanted rows only: reading others would run past its end.
    for kind, name in ((ADD, "a"), (ADD, "b"), (ADD, "out"), (ATTENTION, "b"), (ATTENTION, "c"), (SELECT, "a")):
        description = Description.of("F32", isa)
        # As wide as the widest value, so that width is no reason to refuse it.
        description.n_vocab = N_EMBD
        description.weights[description.ops["weight"][0]] = (
            np.zeros(N_EMBD**2, np.float32),
            0,
            N_EMBD,
            N_EMBD,
            4 * N_EMBD,
        )
        description.ops[name][first(description, kind)] = LOGITS
        with pytest.raises(ValueError, match="the logits"):
            description.make(core)


def test_rows_are_selected_only_where_they_are_wanted(core: Any, isa: str) -> None:
    description = Description.of("F32", isa)
    description.ops["flags"][first(description, SELECT)] = 0
    with pytest.raises(ValueError, match="selects"):
        description.make(core)


def test_an_op_that_changes_shared_buffers_is_waited_for(core: Any, isa: str) -> None:
    description = Description.of("Q4_K", isa)
    description.ops["flags"][first(description, QUANTIZE) - 1] |= NO_WAIT
    with pytest.raises(ValueError, match="waited for"):
        description.make(core)
    description = Description.of("Q4_K", isa)
    description.ops["flags"][-1] |= NO_WAIT
    with pytest.raises(ValueError, match="waited for"):
        description.make(core)


def test_a_wide_quantization_without_a_product_has_room(core: Any, isa: str) -> None:
    description = Description.of("Q4_K", isa)
    wide = int(np.argmax(description.slots))
    description.slots[wide] = 8192
    extra = description.ops[first(description, QUANTIZE)].copy()
    extra["a"], extra["width"] = wide, 8192
    at = first(description, QUANTIZE)
    description.ops = np.insert(description.ops, at, extra)
    assert np.isfinite(Step().run(description.make(core))).all()


def test_numbers_at_odd_addresses_are_refused(core: Any, executor: Any) -> None:
    raw = np.zeros(4 * 31, np.uint8)
    with pytest.raises(ValueError, match="middle of a number"):
        Step(tokens=memoryview(raw)[1:121]).run(executor)  # type: ignore[arg-type]
    description = Description.of("F32", "generic")
    data, *rest = description.weights[0]
    shifted = np.zeros(memoryview(data).nbytes + 1, np.uint8)
    description.weights[0] = (memoryview(shifted)[1:], *rest)
    with pytest.raises(ValueError, match="middle of a number"):
        description.make(core)


@pytest.mark.parametrize("position", range(10))
@pytest.mark.parametrize("value", [None, 1.5, "x", b"abc", [1], object()], ids=repr)
def test_wrong_kinds_of_arguments_are_type_or_value_errors(core: Any, position: int, value: object) -> None:
    description = Description.of("F32", "generic")
    arguments: list[Any] = [description.isa, description.ops, description.weights, description.slots]
    arguments += [description.states, description.ropes, description.pages, 64, N_VOCAB, 0]
    arguments[position] = value
    with pytest.raises((TypeError, ValueError)):
        core.Executor(*arguments)


@pytest.mark.parametrize("row", [None, [], (), (b"",), [b"", 0, 1, 1, 4], (b"1234", 0, 1, 1), (None, 0, 1, 1, 4)])
def test_wrong_rows_are_type_or_value_errors(core: Any, row: object) -> None:
    for name in ("weights", "ropes"):
        description = Description.of("F32", "generic")
        setattr(description, name, [row])
        with pytest.raises((TypeError, ValueError)):
            description.make(core)


def test_sequences_that_lie_about_their_length(core: Any) -> None:
    class Liar:
        def __init__(self, n: int) -> None:
            self.n = n

        def __len__(self) -> int:
            return self.n

        def __getitem__(self, i: int) -> object:
            raise IndexError(i)

    for n in (1, 1000, 2**31, 2**40):
        for name in ("weights", "ropes"):
            description = Description.of("F32", "generic")
            setattr(description, name, Liar(n))
            with pytest.raises((ValueError, IndexError)):
                description.make(core)


@pytest.mark.parametrize("group", [-(2**31), -1, 2, 2**31 - 1])
def test_groups_that_are_not_there(executor: Any, group: int) -> None:
    with pytest.raises(ValueError, match="group"):
        executor.copy_pages(group, np.array([0, 1], np.int32))
    with pytest.raises(ValueError, match="group"):
        executor.rotate_keys(group, np.array([0], np.int32), 1)


@pytest.mark.parametrize("page", [-(2**31), -1, N_PAGES, 2**31 - 1])
def test_pages_that_are_not_there(executor: Any, page: int) -> None:
    for pair in ((0, page), (page, 0)):
        with pytest.raises(ValueError, match="page"):
            executor.copy_pages(0, np.array(pair, np.int32))
    with pytest.raises(ValueError, match="page"):
        executor.rotate_keys(0, np.array([0, page], np.int32), 1)


def test_odd_page_lists(executor: Any) -> None:
    with pytest.raises(ValueError, match="not pairs"):
        executor.copy_pages(0, np.array([0, 1, 2], np.int32))
    for nothing in (np.zeros(0, np.int32), b""):
        executor.copy_pages(0, nothing)
        executor.rotate_keys(0, nothing, 1)
    before = Step().run(executor)
    executor.copy_pages(0, np.array([3, 3, 3, 2, 2, 3], np.int32))
    for delta in (-(2**31), 2**31 - 1, 0):
        executor.rotate_keys(0, np.array([2, 3], np.int32), delta)
    np.testing.assert_array_equal(Step().run(executor), before)


@pytest.mark.parametrize(
    "arguments",
    [
        ("sse", 0, b"1234", 4, 1),
        ("generic", -1, b"1234", 4, 1),
        ("generic", 42, b"1234", 4, 1),
        ("generic", 2**31 - 1, b"1234", 4, 1),
        ("generic", 0, b"1234", 0, 1),
        ("generic", 0, b"1234", -4, 1),
        ("generic", 0, b"", 4, 1),
        ("generic", 0, b"1234", 8, 1),
        ("generic", 0, b"1234", 4, 0),
        ("generic", 0, b"1234", 4, 2),
        ("generic", 2, b"1234", 4, 32),
        ("generic", 12, bytes(143), 143, 256),
    ],
)
def test_dequantize_checks_everything(core: Any, arguments: tuple[str, int, bytes, int, int]) -> None:
    isa, type_id, rows, row_bytes, n = arguments
    with pytest.raises(ValueError):
        core.dequantize(isa, type_id, rows, row_bytes, np.empty(n, np.float32))


@pytest.mark.parametrize(
    "arguments", [(0, 1, 1), (-1, 1, 1), (4095, 1, 1), (4096, 0, 1), (4096, 257, 1), (4096, 1, 0), (2**62, 1, 1)]
)
def test_bandwidth_checks_everything(core: Any, arguments: tuple[int, int, int]) -> None:
    with pytest.raises(EXPECTED):
        core.read_bandwidth(*arguments)
