import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgellm.errors import ArgumentError
from edgellm.sampling import steps
from edgellm.sampling.history import TokenWindow
from edgellm.sampling.steps import Candidates

INF = math.inf


def logits_of(values: Sequence[float]) -> NDArray[np.float32]:
    return np.array(values, np.float32)


def of_probabilities(values: Sequence[float]) -> Candidates:
    return Candidates.all(np.log(np.array(values)).astype(np.float32))


def window_of(tokens: Sequence[int]) -> TokenWindow:
    window = TokenWindow(-1)
    for token in tokens:
        window.push(token)
    return window


@pytest.mark.parametrize(
    ("logits", "k", "ids"),
    [
        ([1, 4, 2, 3], 1, [1]),
        ([1, 4, 2, 3], 3, [1, 3, 2]),
        ([1, 4, 2, 3], 9, [1, 3, 2, 0]),
        ([5, 7, 5, 7, 5], 3, [1, 3, 0]),
        ([0, 0, 0, 0], 2, [0, 1]),
        ([0.0, -0.0, 0.0], 2, [0, 1]),
        ([-INF, 1, -INF, 0], 3, [1, 3]),
        ([-3e38, 3e38], 2, [1, 0]),
    ],
)
def test_top_k(logits: Sequence[float], k: int, ids: list[int]) -> None:
    kept = steps.top_k(Candidates.all(logits_of(logits)), k)
    assert kept.ids.tolist() == ids
    assert kept.logits.tolist() == [np.float32(logits[i]) for i in ids]
    assert kept.ranked


@pytest.mark.parametrize(
    ("probabilities", "p", "ids"),
    [
        ([0.1, 0.5, 0.15, 0.25], 0.0, [1]),
        ([0.1, 0.5, 0.15, 0.25], 0.4, [1]),
        ([0.1, 0.5, 0.15, 0.25], 0.51, [1, 3]),
        ([0.1, 0.5, 0.15, 0.25], 0.76, [1, 3, 2]),
        ([0.1, 0.5, 0.15, 0.25], 0.95, [1, 3, 2, 0]),
        ([0.25, 0.25, 0.25, 0.25], 0.49, [0, 1]),
    ],
)
def test_top_p(probabilities: Sequence[float], p: float, ids: list[int]) -> None:
    candidates = of_probabilities(probabilities)
    assert steps.top_p(candidates, p).ids.tolist() == ids
    assert steps.top_p(steps.top_k(candidates, 4), p).ids.tolist() == ids


def test_top_p_after_top_k_is_of_the_mass_that_is_left() -> None:
    candidates = of_probabilities([0.1, 0.3, 0.2, 0.4])
    assert steps.top_p(candidates, 0.6).ids.tolist() == [3, 1]
    assert steps.top_p(steps.top_k(candidates, 2), 0.57).ids.tolist() == [3]


@pytest.mark.parametrize(
    ("probabilities", "p", "ids"),
    [
        ([0.1, 0.5, 0.15, 0.25], 1.0, [1]),
        ([0.1, 0.5, 0.15, 0.25], 0.49, [1, 3]),
        ([0.1, 0.5, 0.15, 0.25], 0.29, [1, 2, 3]),
        ([0.1, 0.5, 0.15, 0.25], 0.01, [0, 1, 2, 3]),
        ([0.4, 0.1, 0.4, 0.1], 1.0, [0, 2]),
    ],
)
def test_min_p(probabilities: Sequence[float], p: float, ids: list[int]) -> None:
    assert steps.min_p(of_probabilities(probabilities), p).ids.tolist() == ids


def test_min_p_keeps_the_order_of_ranked_candidates() -> None:
    ranked = steps.top_k(of_probabilities([0.1, 0.5, 0.15, 0.25]), 4)
    kept = steps.min_p(ranked, 0.29)
    assert kept.ids.tolist() == [1, 3, 2]
    assert kept.ranked


@pytest.mark.parametrize(("t", "probabilities"), [(1.0, [0.2, 0.8]), (0.5, [1 / 17, 16 / 17]), (2.0, [1 / 3, 2 / 3])])
def test_temperature(t: float, probabilities: Sequence[float]) -> None:
    mass = steps.weights(steps.temperature(of_probabilities([0.2, 0.8]), t).logits)
    assert mass / mass.sum() == pytest.approx(probabilities, rel=1e-6)


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
    result = steps.penalties(Candidates.all(logits), window_of(history), repetition, frequency, presence)
    assert result.logits.tolist() == expected
    assert logits.tolist() == [2, -2, 0, 4]


def test_repetition_never_makes_a_token_likelier_than_it_was() -> None:
    logits = logits_of([0.5, 1e-3, -1e-3, -0.5])
    result = steps.penalties(Candidates.all(logits), window_of([0, 1, 2, 3]), 2.0, 0, 0)
    assert result.logits == pytest.approx([0.25, 5e-4, -2e-3, -1.0])


def test_extreme_penalties_stay_numbers() -> None:
    candidates = Candidates.all(logits_of([3e38, -3e38, 0, -INF]))
    for repetition in (5e-324, 1e308):
        result = steps.penalties(candidates, window_of([0, 1, 2, 3]), repetition, 100, 100)
        assert not np.isnan(result.logits).any()
        assert not np.isposinf(result.logits).any()
        assert result.logits[3] == -INF


def test_logit_bias_adds_and_forbids() -> None:
    logits = logits_of([1, 2, 3, -INF])
    result = steps.logit_bias(Candidates.all(logits), np.array([0, 2, 3]), np.array([1e308, -INF, 5.0]))
    assert result.logits.tolist() == [float(np.finfo(np.float32).max), 2, -INF, -INF]
    assert logits.tolist() == [1, 2, 3, -INF]


@pytest.mark.parametrize("extra", [0, 3])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_mask_has_a_bit_per_token(extra: int, stride: int) -> None:
    words = np.array([0x80000001, 0x80000001, 0x00000020, *[0xFFFFFFFF] * extra], np.uint32)
    result = steps.allow(Candidates.all(np.arange(70, dtype=np.float32)), np.repeat(words, stride)[::stride])
    assert np.flatnonzero(np.isfinite(result.logits)).tolist() == [0, 31, 32, 63, 69]
    assert result.logits.dtype == np.float32


def test_tokens_beyond_the_end_of_a_mask_are_forbidden() -> None:
    result = steps.allow(Candidates.all(np.zeros(70, np.float32)), np.full(2, 0xFFFFFFFF, np.uint32))
    assert np.flatnonzero(np.isfinite(result.logits)).tolist() == list(range(64))


@pytest.mark.parametrize("mask", [np.ones(70, np.bool_), np.ones(3, np.int64), np.ones((1, 3), np.uint32)])
def test_a_mask_of_another_shape_is_refused(mask: NDArray[Any]) -> None:
    with pytest.raises(ArgumentError, match="mask"):
        steps.allow(Candidates.all(np.zeros(70, np.float32)), mask)


@pytest.mark.parametrize(
    ("uniform", "token"), [(0.0, 1), (0.249, 1), (0.251, 2), (0.749, 2), (0.751, 4), (1 - 2**-53, 4)]
)
def test_draw_finds_the_token_and_never_an_impossible_one(uniform: float, token: int) -> None:
    candidates = Candidates.all(logits_of([-INF, math.log(1), math.log(2), -INF, math.log(1), -INF]))
    assert steps.draw(candidates, uniform) == token


@given(st.lists(st.floats(-60, 0), min_size=1, max_size=300), st.integers(0, 2**53 - 1))
def test_the_highest_point_of_the_line_still_is_a_token(logits: list[float], point: int) -> None:
    candidates = Candidates.all(logits_of(logits))
    for uniform in (point * 2.0**-53, 1 - 2**-53):
        assert 0 <= steps.draw(candidates, uniform) < len(logits)


def distributions() -> st.SearchStrategy[NDArray[np.float32]]:
    """Vocabularies large enough for the column maxima, from peaked to flat, with many ties and impossible tokens."""

    def build(seed: int, size: int, spread: float, grain: float, holes: float) -> NDArray[np.float32]:
        rng = np.random.default_rng(seed)
        values = np.round(rng.standard_normal(size) * spread / grain) * grain
        values[rng.random(size) < holes] = -INF
        values[int(rng.integers(size))] = 0.0
        return values.astype(np.float32)

    return st.builds(
        build,
        st.integers(0, 2**32),
        st.integers(1, 9000),
        st.sampled_from([0.0, 0.1, 3.0, 30.0]),
        st.sampled_from([1e-6, 0.5, 5.0]),
        st.sampled_from([0.0, 0.5, 0.999]),
    )


def ranking(logits: NDArray[np.float32]) -> NDArray[np.int64]:
    """The definition: all possible tokens by falling logit, then by id."""
    order = np.lexsort((np.arange(logits.size), -logits))
    return order[np.isfinite(logits[order])]


@given(distributions(), st.integers(1, 3000))
def test_top_k_is_the_head_of_a_full_sort(logits: NDArray[np.float32], k: int) -> None:
    assert steps.top_k(Candidates.all(logits), k).ids.tolist() == ranking(logits)[:k].tolist()


@given(distributions(), st.floats(0, 0.999))
def test_top_p_is_the_shortest_head_of_a_full_sort_with_the_mass(logits: NDArray[np.float32], p: float) -> None:
    kept = steps.top_p(Candidates.all(logits), p).ids
    order = ranking(logits)
    assert kept.tolist() == order[: kept.size].tolist()
    mass = np.exp(logits[order].astype(np.float64))
    share = np.cumsum(mass) / mass.sum()
    assert share[kept.size - 1] >= p - 1e-9
    assert kept.size == 1 or share[kept.size - 2] < p + 1e-9
