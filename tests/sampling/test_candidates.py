import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgellm.sampling import candidates
from edgellm.sampling.candidates import Candidates
from tests.sampling.distributions import INF, logits_of, of_probabilities, ranked


@pytest.mark.parametrize(
    ("uniform", "token"), [(0.0, 1), (0.249, 1), (0.251, 2), (0.749, 2), (0.751, 4), (1 - 2**-53, 4)]
)
def test_draw_finds_the_token_and_never_an_impossible_one(uniform: float, token: int) -> None:
    found = Candidates.all(logits_of([-INF, math.log(1), math.log(2), -INF, math.log(1), -INF]))
    assert candidates.draw(found, uniform) == token


@given(st.lists(st.floats(-60, 0), min_size=1, max_size=300), st.integers(0, 2**53 - 1))
def test_the_highest_point_of_the_line_still_is_a_token(logits: list[float], point: int) -> None:
    found = Candidates.all(logits_of(logits))
    for uniform in (point * 2.0**-53, 1 - 2**-53):
        assert 0 <= candidates.draw(found, uniform) < len(logits)


@pytest.mark.parametrize("order", ["whole", "part", "ranked"])
def test_ids_are_found_wherever_they_are(order: str) -> None:
    found = Candidates.all(logits_of([0.5, 3, 1, 2, 5]))
    if order != "whole":
        found = found.take(np.array([0, 1, 3]))
    if order == "ranked":
        found = ranked(found)
    at, there = found.find(np.array([3, 4, 0, 2]))
    assert found.ids[at].tolist() == ([3, 4, 0, 2] if order == "whole" else [3, 0])
    assert there.tolist() == [True, order == "whole", True, order == "whole"]


def test_probability_and_surprise_of_a_token() -> None:
    found = of_probabilities([0.5, 0.25, 0.125, 0.125]).take(np.array([1, 2, 3]))
    assert found.probability(1) == pytest.approx(0.5)
    assert found.surprise(2) == pytest.approx(2.0)
    assert found.probability(0) is None
    assert found.surprise(0) is None
    assert Candidates.all(logits_of([0, -INF])).surprise(1) is None


def test_entropy() -> None:
    assert candidates.entropy(np.array([3.0, 3.0, 0.0, 3.0, 3.0])) == pytest.approx(math.log(4))
    assert candidates.entropy(np.array([0.0, 2.0])) == pytest.approx(0.0, abs=1e-12)


@given(
    st.lists(st.tuples(st.floats(-1e3, 1e3), st.sampled_from([0.0, 1.0, 1e-300, 3.0])), min_size=1, max_size=30),
    st.floats(0, 1),
    st.integers(1, 400),
)
def test_the_heaviest_are_the_head_of_a_full_sort(pairs: list[tuple[float, float]], share: float, times: int) -> None:
    keys, mass = (np.tile(np.array(values), times) for values in zip(*pairs, strict=True))
    if not mass.any():
        mass[0] = 1.0
    goal = share * float(mass.sum())
    chosen = candidates.heaviest(keys, mass, goal)
    order = np.argsort(-keys, kind="stable")
    order = order[mass[order] > 0]
    count = np.count_nonzero(chosen)
    assert np.array_equal(np.sort(order[:count]), np.flatnonzero(chosen))
    reached = np.cumsum(mass[order])
    assert reached[count - 1] >= goal * (1 - 1e-9)
    assert count == 1 or reached[count - 2] <= goal * (1 + 1e-9)
