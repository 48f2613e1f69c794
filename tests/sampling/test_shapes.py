import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from edgellm.sampling import shapes
from edgellm.sampling.candidates import Candidates, weights
from tests.sampling.distributions import INF, logits_of, of_probabilities, ranked


@pytest.mark.parametrize(("t", "probabilities"), [(1.0, [0.2, 0.8]), (0.5, [1 / 17, 16 / 17]), (2.0, [1 / 3, 2 / 3])])
def test_temperature(t: float, probabilities: Sequence[float]) -> None:
    mass = weights(shapes.temperature(of_probabilities([0.2, 0.8]), t).logits)
    assert mass / mass.sum() == pytest.approx(probabilities, rel=1e-6)


def test_cold_temperatures_stay_numbers() -> None:
    for t in (0.0, 5e-324, 1e-9):
        mass = weights(shapes.temperature(Candidates.all(logits_of([1, 3e38, -3e38, -INF])), t).logits)
        assert mass.tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize(
    ("probabilities", "exponent", "t"),
    [
        ([0.25, 0.25, 0.25, 0.25], 1.0, 2.0),
        ([1.0, 1e-30, 1e-30, 1e-30], 1.0, 0.5),
        # Entropy 1.5 bits of 2 possible ones.
        ([0.5, 0.25, 0.25, 0.0], 1.0, 0.5 + 1.5 * 1.5 / math.log2(3)),
        ([0.5, 0.25, 0.125, 0.125], 1.0, 0.5 + 1.5 * 1.75 / 2),
        ([0.5, 0.25, 0.125, 0.125], 2.0, 0.5 + 1.5 * (1.75 / 2) ** 2),
        ([0.5, 0.25, 0.125, 0.125], 0.0, 2.0),
    ],
)
def test_dynamic_temperature_follows_the_entropy(probabilities: Sequence[float], exponent: float, t: float) -> None:
    with np.errstate(divide="ignore"):
        candidates = of_probabilities(probabilities)
    result = shapes.dynamic_temperature(candidates, 0.5, 2.0, exponent)
    possible = candidates.logits > -INF
    expected = (candidates.logits[possible] - candidates.logits.max()) / t
    assert result.logits[possible] == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_dynamic_temperature_has_nothing_to_do_for_a_single_token() -> None:
    candidates = Candidates.all(logits_of([-INF, 4, -INF]))
    assert shapes.dynamic_temperature(candidates, 0.0, 2.0, 1.0) is candidates


@pytest.mark.parametrize("order", [lambda found: found, ranked])
def test_adaptive_p_prefers_what_is_near_the_target(order: Callable[[Candidates], Candidates]) -> None:
    candidates = order(Candidates.all(logits_of([*np.log([0.5, 0.3, 0.2]), -INF])))
    result = shapes.adaptive_p(candidates, 0.3)
    assert result.ids.tolist() == [0, 1, 2, 3]
    far = 0.2 / 0.3
    near = 0.1 / 0.3
    assert result.logits[:3] == pytest.approx(
        [5 - 10 * far * far / (1 + far), 5, 5 - 10 * near * near / (1 + near)], abs=1e-5
    )
    assert result.logits[3] == -INF
