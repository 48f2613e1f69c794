from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgellm.sampling import filters
from edgellm.sampling.candidates import Candidates
from tests.sampling.distributions import INF, distributions, logits_of, of_probabilities, ranked, ranking


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
    kept = filters.top_k(Candidates.all(logits_of(logits)), k)
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
    assert sorted(filters.top_p(candidates, p).ids.tolist()) == sorted(ids)
    assert filters.top_p(filters.top_k(candidates, 4), p).ids.tolist() == ids


def test_top_p_after_top_k_is_of_the_mass_that_is_left() -> None:
    candidates = of_probabilities([0.1, 0.3, 0.2, 0.4])
    assert sorted(filters.top_p(candidates, 0.6).ids.tolist()) == [1, 3]
    assert filters.top_p(filters.top_k(candidates, 2), 0.57).ids.tolist() == [3]


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
    assert filters.min_p(of_probabilities(probabilities), p).ids.tolist() == ids


def test_min_p_keeps_the_order_of_ranked_candidates() -> None:
    ranked = filters.top_k(of_probabilities([0.1, 0.5, 0.15, 0.25]), 4)
    kept = filters.min_p(ranked, 0.29)
    assert kept.ids.tolist() == [1, 3, 2]
    assert kept.ranked


@given(distributions(), st.integers(1, 3000))
def test_top_k_is_the_head_of_a_full_sort(logits: NDArray[np.float32], k: int) -> None:
    assert filters.top_k(Candidates.all(logits), k).ids.tolist() == ranking(logits)[:k].tolist()


@given(distributions(), st.floats(0, 0.999))
def test_top_p_is_the_shortest_head_of_a_full_sort_with_the_mass(logits: NDArray[np.float32], p: float) -> None:
    kept = filters.top_p(Candidates.all(logits), p).ids
    order = ranking(logits)
    assert sorted(kept.tolist()) == sorted(order[: kept.size].tolist())
    mass = np.exp(logits[order].astype(np.float64))
    share = np.cumsum(mass) / mass.sum()
    assert share[kept.size - 1] >= p - 1e-9
    assert kept.size == 1 or share[kept.size - 2] < p + 1e-9


@pytest.mark.parametrize(
    ("probabilities", "p", "ids"),
    [
        # Entropy 1.14 nats; surprises 0.69, 1.20, 1.90 and 3.00.
        ([0.5, 0.3, 0.15, 0.05], 0.0, [1]),
        ([0.5, 0.3, 0.15, 0.05], 0.29, [1]),
        ([0.5, 0.3, 0.15, 0.05], 0.31, [0, 1]),
        ([0.5, 0.3, 0.15, 0.05], 0.79, [0, 1]),
        ([0.5, 0.3, 0.15, 0.05], 0.81, [0, 1, 2]),
        ([0.5, 0.3, 0.15, 0.05], 0.96, [0, 1, 2, 3]),
        ([0.25, 0.25, 0.25, 0.25], 0.49, [0, 1]),
    ],
)
def test_typical_p(probabilities: Sequence[float], p: float, ids: list[int]) -> None:
    candidates = of_probabilities(probabilities)
    assert filters.typical_p(candidates, p).ids.tolist() == ids
    kept = filters.typical_p(ranked(candidates), p)
    assert kept.ranked
    assert sorted(kept.ids.tolist()) == ids


@given(distributions(), st.floats(0, 0.999))
def test_typical_p_is_the_head_of_a_full_sort_by_typicality(logits: NDArray[np.float32], p: float) -> None:
    kept = filters.typical_p(Candidates.all(logits), p).ids
    wide = logits.astype(np.float64)
    share = np.exp(wide - wide.max())
    share /= share.sum()
    possible = np.flatnonzero(share)
    surprise = -np.log(share[possible])
    distance = np.abs(surprise - (share[possible] * surprise).sum())
    order = possible[np.argsort(distance, kind="stable")]
    mass = share[order].cumsum()
    assert share[kept].sum() >= p - 1e-9
    assert kept.size == 1 or mass[kept.size - 2] < p + 1e-9
    # Which of tokens as typical as each other is a matter of rounding; how typical they are is not.
    last = np.sort(distance)[kept.size - 1]
    assert np.abs(surprise[np.isin(possible, kept)] - (share[possible] * surprise).sum()).max() <= last + 1e-9


@pytest.mark.parametrize(
    ("logits", "n", "ids"),
    [
        # Mean 2, standard deviation 2.
        ([0, 4, 0, 4], 1.9, [1, 3]),
        ([0, 4, 0, 4], 2.0, [0, 1, 2, 3]),
        ([0, -INF, 4, -INF, 0, 4], 1.9, [2, 5]),
        ([7, 7, 7], 0.5, [0, 1, 2]),
        ([-INF, 5, -INF], 1.0, [1]),
        ([3e38, -3e38, 0], 1e-3, [0]),
    ],
)
def test_top_n_sigma(logits: Sequence[float], n: float, ids: list[int]) -> None:
    assert filters.top_n_sigma(Candidates.all(logits_of(logits)), n).ids.tolist() == ids


@pytest.mark.parametrize(
    ("probabilities", "threshold", "ids"),
    [
        ([0.4, 0.3, 0.2, 0.1], 0.15, [2, 3]),
        ([0.4, 0.3, 0.2, 0.1], 0.25, [1, 2, 3]),
        ([0.4, 0.3, 0.2, 0.1], 0.35, [0, 1, 2, 3]),
        ([0.4, 0.3, 0.2, 0.1], 0.9, [0, 1, 2, 3]),
        ([0.4, 0.3, 0.2, 0.1], 0.0, [3]),
        ([0.25, 0.25, 0.25, 0.25], 0.1, [3]),
        ([1.0], 0.1, [0]),
    ],
)
def test_xtc_keeps_the_least_likely_of_the_top_choices(
    probabilities: Sequence[float], threshold: float, ids: list[int]
) -> None:
    candidates = of_probabilities(probabilities)
    assert filters.xtc(candidates, 0.5, threshold, 0.49).ids.tolist() == ids
    assert sorted(filters.xtc(ranked(candidates), 0.5, threshold, 0.49).ids.tolist()) == ids
    assert filters.xtc(candidates, 0.5, threshold, 0.5) is candidates


def test_xtc_never_leaves_only_impossible_tokens() -> None:
    kept = filters.xtc(Candidates.all(logits_of([1, -INF, 2, -INF])), 1.0, 0.0, 0.0)
    assert kept.ids[np.isfinite(kept.logits)].tolist() == [0]


@pytest.mark.parametrize(
    ("limit", "ids"), [(3.0, [0, 1, 2, 3]), (2.9, [0, 1]), (2.0, [0, 1]), (1.9, [0]), (0.0, [0]), (-5.0, [0])]
)
def test_mirostat_keeps_what_surprises_little_enough(limit: float, ids: list[int]) -> None:
    # 1, 2, 3 and 3 bits; a hair more than the limit, for the rounding of logarithms.
    candidates = of_probabilities([0.5, 0.25, 0.125, 0.125])
    assert filters.mirostat(candidates, limit + 1e-6).ids.tolist() == ids
    assert filters.mirostat(ranked(candidates), limit + 1e-6).ids.tolist() == ids


@pytest.mark.parametrize(
    "step",
    [
        lambda found: filters.top_p(found, 0.9),
        lambda found: filters.typical_p(found, 0.9),
        lambda found: filters.min_p(found, 0.1),
        lambda found: filters.top_n_sigma(found, 1.0),
        lambda found: filters.xtc(found, 1.0, 0.2, 0.0),
        lambda found: filters.mirostat(found, 3.0),
    ],
)
@given(logits=distributions())
def test_a_filter_keeps_the_same_tokens_of_ranked_candidates_and_never_none(
    step: Callable[[Candidates], Candidates], logits: NDArray[np.float32]
) -> None:
    candidates = Candidates.all(logits)
    plain, sorted_ = step(candidates), step(ranked(candidates))
    assert np.isfinite(plain.logits).any()
    assert np.array_equal(plain.logits, logits[plain.ids])
    possible = np.isfinite(plain.logits)
    if not plain.ranked:
        assert np.all(np.diff(plain.ids) > 0)
    # The cut by mass may differ by one token where sums in another order round differently.
    difference = set(plain.ids[possible].tolist()) ^ set(sorted_.ids[np.isfinite(sorted_.logits)].tolist())
    assert len(difference) <= 1
