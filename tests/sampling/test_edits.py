from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgellm.errors import ArgumentError
from edgellm.sampling import edits
from edgellm.sampling.candidates import Candidates
from tests.sampling.distributions import INF, logits_of, ranked
from tests.support.rules import bits


def counted(tokens: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    found = Counter(tokens)
    return np.array(list(found), np.int64), np.array(list(found.values()), np.int64)


@pytest.mark.parametrize(
    ("history", "repetition", "frequency", "presence", "expected"),
    [
        ([], 2.0, 1.0, 1.0, [2, -2, 0, 4]),
        ([0, 1, 2], 2.0, 0.0, 0.0, [1, -4, 0, 4]),
        ([0, 1, 0], 0.5, 0.0, 0.0, [4, -1, 0, 4]),
        ([3, 3, 3, 1], 1.0, 0.5, 0.0, [2, -2.5, 0, 2.5]),
        ([3, 3, 3, 1], 1.0, 0.0, 0.5, [2, -2.5, 0, 3.5]),
        ([3, 3, 3, 1], 1.0, -0.5, -1.0, [2, -0.5, 0, 6.5]),
        ([3, 3, 1], 2.0, 0.5, 0.25, [2, -4.75, 0, 0.75]),
    ],
)
def test_penalties(
    history: Sequence[int], repetition: float, frequency: float, presence: float, expected: list[float]
) -> None:
    logits = logits_of([2, -2, 0, 4])
    result = edits.penalties(Candidates.all(logits), *counted(history), repetition, frequency, presence)
    assert result.logits.tolist() == expected
    assert logits.tolist() == [2, -2, 0, 4]


def test_repetition_never_makes_a_token_likelier_than_it_was() -> None:
    logits = logits_of([0.5, 1e-3, -1e-3, -0.5])
    result = edits.penalties(Candidates.all(logits), *counted([0, 1, 2, 3]), 2.0, 0, 0)
    assert result.logits == pytest.approx([0.25, 5e-4, -2e-3, -1.0])


def test_extreme_penalties_stay_numbers() -> None:
    candidates = Candidates.all(logits_of([3e38, -3e38, 0, -INF]))
    for repetition in (5e-324, 1e308):
        result = edits.penalties(candidates, *counted([0, 1, 2, 3]), repetition, 100, 100)
        assert np.isfinite(result.logits[:3]).all()
        assert result.logits[3] == -INF


def test_logit_bias_adds_and_forbids() -> None:
    logits = logits_of([1, 2, 3, -INF])
    result = edits.logit_bias(Candidates.all(logits), np.array([0, 2, 3]), np.array([1e308, -INF, 5.0]))
    assert result.logits.tolist() == [float(np.finfo(np.float32).max), 2, -INF, -INF]
    assert logits.tolist() == [1, 2, 3, -INF]


@pytest.mark.parametrize("extra", [0, 3])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("allowed", [[0, 31, 32, 63, 69], [5], [i for i in range(70) if i % 9], list(range(70))])
def test_a_mask_has_a_bit_per_token(allowed: list[int], stride: int, extra: int) -> None:
    words = np.concatenate([bits(allowed, 70), np.full(extra, 0xFFFFFFFF, np.uint32)])
    result = edits.allow(Candidates.all(np.arange(70, dtype=np.float32)), np.repeat(words, stride)[::stride])
    assert result is not None
    assert result.ids[np.isfinite(result.logits)].tolist() == allowed
    assert np.array_equal(result.logits[np.isfinite(result.logits)], np.array(allowed, np.float32))
    assert result.logits.dtype == np.float32


def test_tokens_beyond_the_end_of_a_mask_are_forbidden() -> None:
    result = edits.allow(Candidates.all(np.zeros(70, np.float32)), np.full(2, 0xFFFFFFFF, np.uint32))
    assert result is not None
    assert result.ids[np.isfinite(result.logits)].tolist() == list(range(64))


def test_a_mask_may_allow_nothing() -> None:
    assert edits.allow(Candidates.all(np.zeros(70, np.float32)), np.zeros(3, np.uint32)) is None


@pytest.mark.parametrize("mask", [np.ones(70, np.bool_), np.ones(3, np.int64), np.ones((1, 3), np.uint32)])
def test_a_mask_of_another_shape_is_refused(mask: NDArray[Any]) -> None:
    with pytest.raises(ArgumentError, match="mask"):
        edits.allow(Candidates.all(np.zeros(70, np.float32)), mask)


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ({}, [1, 2, 3, -INF]),
        ({0: 1}, [1, 2, 3, -INF]),
        ({0: 2}, [0.5, 2, 3, -INF]),
        ({1: 3, 2: 5}, [1, 1, -1, -INF]),
        ({3: 4}, [1, 2, 3, -INF]),
    ],
)
def test_dry_grows_with_the_length_of_the_repetition(lengths: dict[int, int], expected: list[float]) -> None:
    ids, counts = np.array(list(lengths), np.int64), np.array(list(lengths.values()), np.int64)
    result = edits.dry(Candidates.all(logits_of([1, 2, 3, -INF])), ids, counts, 0.5, 2.0, 2)
    assert result.logits.tolist() == expected


def test_an_extreme_dry_penalty_stays_a_number() -> None:
    ids, lengths = np.array([0, 1]), np.array([9000, 2])
    result = edits.dry(Candidates.all(logits_of([3, 3])), ids, lengths, 1e308, 1e308, 1)
    assert result.logits.tolist() == [-float(np.finfo(np.float32).max)] * 2


def test_edits_reach_candidates_in_any_order_and_leave_absent_ones_alone() -> None:
    found = Candidates.all(logits_of([5, 4, 3, 2, 1])).take(np.array([0, 2, 4]))
    for one in (found, ranked(found)):
        biased = edits.logit_bias(one, np.array([1, 0]), np.array([9.0, -3.5]))
        assert dict(zip(biased.ids.tolist(), biased.logits.tolist(), strict=True)) == {0: 1.5, 2: 3, 4: 1}
        assert biased.ids.tolist() == ([2, 0, 4] if one.ranked else [0, 2, 4])
        counts = np.array([2, 4, 3]), np.array([1, 2, 1])
        punished = edits.penalties(one, *counts, 1.0, 1.0, 0.0)
        assert dict(zip(punished.ids.tolist(), punished.logits.tolist(), strict=True)) == {0: 5, 2: 2, 4: -1}
        again = edits.dry(one, np.array([4, 3]), np.array([2, 2]), 1.0, 2.0, 2)
        assert dict(zip(again.ids.tolist(), again.logits.tolist(), strict=True)) == {0: 5, 2: 3, 4: 0}


def test_an_edit_keeps_the_scale_of_earlier_steps() -> None:
    cold = Candidates.all(np.array([-3.5, -1e300, 0.0]))
    assert edits.logit_bias(cold, np.array([0]), np.array([1.0])).logits.tolist() == [-2.5, -1e300, 0.0]
