"""Which steps run, in which order, and those that steer by what was chosen before."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgellm.sampling import SAMPLERS, Sampler, SamplingParams

NEUTRAL: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


def tokens_of(logits: NDArray[np.float32], count: int, **settings: Any) -> list[int]:
    one = Sampler(SamplingParams(**{"seed": 1, **settings}), logits.size)
    tokens = []
    for _ in range(count):
        tokens.append(one.sample(logits))
        one.accept(tokens[-1])
    return tokens


def logs(*probabilities: float) -> NDArray[np.float32]:
    return np.log(np.array(probabilities)).astype(np.float32)


@pytest.mark.parametrize(
    ("samplers", "possible"),
    [
        # Of all four tokens 0 has 40 %, of the first two 57 %.
        (["top_k", "top_p"], {0}),
        (["top_p", "top_k"], {0, 1}),
        (["top_k"], {0, 1}),
        (["top_p"], {0, 1}),
        ([], {0, 1, 2, 3}),
    ],
)
def test_the_order_of_the_steps_is_what_samplers_says(samplers: list[str], possible: set[int]) -> None:
    settings = {**NEUTRAL, "top_k": 2, "top_p": 0.55}
    assert set(tokens_of(logs(0.4, 0.3, 0.2, 0.1), 200, **settings, samplers=samplers)) == possible


def test_temperature_may_come_first() -> None:
    settings = {**NEUTRAL, "temperature": 3.0, "top_p": 0.65}
    logits = logs(0.4, 0.3, 0.2, 0.1)
    assert set(tokens_of(logits, 200, **settings)) == {0, 1}
    assert set(tokens_of(logits, 200, **settings, samplers=["temperature", "top_p"])) == {0, 1, 2}


def test_penalties_may_come_after_a_filter() -> None:
    settings: dict[str, Any] = {"temperature": 0.0, "presence_penalty": 50.0, "penalty_last_n": -1}
    assert tokens_of(logs(0.4, 0.3, 0.2, 0.1), 4, **settings) == [0, 1, 2, 3]
    drawn = {**settings, **NEUTRAL, "top_k": 2, "samplers": ["top_k", "penalties"]}
    assert set(tokens_of(logs(0.4, 0.3, 0.2, 0.1), 50, **drawn)) == {0, 1}


def test_the_usual_order_is_the_documented_one() -> None:
    assert SamplingParams().order == SAMPLERS
    assert SamplingParams(mirostat=2).order == ("penalties", "dry", "temperature", "mirostat")
    assert SamplingParams(mirostat=2, samplers=["top_k", "mirostat"]).order == ("top_k", "mirostat")


def test_xtc_decides_by_numbers_of_its_own() -> None:
    # A threshold that no two tokens reach leaves the choice alone, whatever the probability.
    logits = np.random.default_rng(1).standard_normal(50).astype(np.float32)
    rare = {**NEUTRAL, "xtc_threshold": 0.5}
    assert tokens_of(logits, 50, **rare, xtc_probability=0.5) == tokens_of(logits, 50, **NEUTRAL)


def test_dry_ends_a_loop() -> None:
    logits = np.zeros(8, np.float32)
    logits[3] = 4.0
    assert tokens_of(logits, 12, temperature=0) == [3] * 12
    dry = tokens_of(logits, 12, temperature=0, dry_multiplier=2.0, dry_base=2.0)
    # One token before it is no repetition to speak of; two cost 2 and three cost 4, which makes a tie of all tokens.
    assert dry[:5] == [3, 3, 3, 3, 0]


def test_a_breaker_lets_a_repetition_begin_again() -> None:
    params = SamplingParams(temperature=0, dry_multiplier=9.0, dry_allowed_length=2)
    logits = np.array([0, 0, 0, 5, 1], np.float32)
    prompt = [1, 2, 3, 4, 1, 2]
    assert Sampler(params, 5, prompt).sample(logits) == 4
    assert Sampler(params, 5, prompt, breakers=[[1]]).sample(logits) == 3
    assert Sampler(params, 5, prompt, breakers=[[4, 1]]).sample(logits) == 3
    assert Sampler(params, 5, prompt, breakers=[[4]]).sample(logits) == 4


@pytest.mark.parametrize("tau", [2.0, 3.0, 5.0])
def test_mirostat_keeps_the_surprise_near_its_target(tau: float) -> None:
    logits = (np.random.default_rng(2).standard_normal(2000) * 2).astype(np.float32)
    tokens = tokens_of(logits, 600, temperature=1.0, mirostat=2, mirostat_tau=tau)
    mass = np.exp(logits.astype(np.float64))
    kept = -np.log2(mass / mass.sum())
    # Surprise is measured among the tokens that were left, so what the model itself is surprised by is a little more.
    assert tau - 0.5 < np.mean(kept[tokens[100:]]) < 10.0
    free = tokens_of(logits, 600, **NEUTRAL)
    assert np.mean(kept[tokens[100:]]) < np.mean(kept[free])


@pytest.mark.parametrize("target", [0.1, 0.3, 0.6])
def test_adaptive_p_steers_the_average_probability_to_its_target(target: float) -> None:
    share = np.array([0.6, 0.2, 0.1, 0.06, 0.04])
    tokens = tokens_of(logs(*share), 1000, **NEUTRAL, adaptive_target=target)
    assert np.mean(share[tokens]) == pytest.approx(target, abs=0.06)
    assert not math.isclose(np.mean(share[tokens_of(logs(*share), 1000, **NEUTRAL)]), target, abs_tol=0.06)


def test_a_token_from_elsewhere_does_not_steer() -> None:
    for settings in ({"mirostat": 2, "mirostat_tau": 0.1}, {"adaptive_target": 0.5, "top_k": 2}):
        one = Sampler(SamplingParams(**{"seed": 1, "temperature": 1.0, **settings}), 4)
        before = one.state()
        one.accept(3)
        assert one.state() == before
        one.sample(logs(0.7, 0.2, 0.05, 0.05))
        one.accept(3)
        after = one.state()
        assert after["average"] == before["average"]
