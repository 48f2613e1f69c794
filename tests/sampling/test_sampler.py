import math
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgellm.errors import ArgumentError, EdgeLLMError, NumericalError, VocabularyError
from edgellm.sampling import SAMPLERS, Sampler, SamplingParams
from tests.support.rules import Rules

INF = math.inf
NEUTRAL: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


def sampler(
    n_vocab: int = 10, prompt_ids: Sequence[int] = (), constraint: Rules | None = None, **settings: Any
) -> Sampler:
    return Sampler(SamplingParams(**{"seed": 1, **settings}), n_vocab, prompt_ids, constraint=constraint)


def array(*values: float) -> NDArray[np.float32]:
    return np.array(values, np.float32)


def run(one: Sampler, logits: NDArray[np.float32], count: int) -> list[int]:
    """Sample and accept `count` tokens of the same distribution."""
    tokens = []
    for _ in range(count):
        tokens.append(one.sample(logits))
        one.accept(tokens[-1])
    return tokens


@pytest.mark.parametrize("top_k", [0, -1, 11, 10**9])
def test_top_k_off_reaches_every_token(top_k: int) -> None:
    one = sampler(**{**NEUTRAL, "top_k": top_k})
    assert set(run(one, np.zeros(10, np.float32), 500)) == set(range(10))


@pytest.mark.parametrize("temperature", [0, 1e-9, 5e-324])
@pytest.mark.parametrize(
    "filters",
    [
        {},
        {"top_p": 0.1},
        {"min_p": 0.5},
        {"top_k": 1},
        {"logit_bias": {3: 0.0}},
        {"xtc_probability": 1.0, "xtc_threshold": 0.0},
        {"mirostat": 2},
        {"adaptive_target": 0.1},
        {"samplers": ["xtc", "temperature"], "xtc_probability": 1.0},
        {"samplers": []},
    ],
)
def test_cold_sampling_takes_the_first_of_the_largest(temperature: float, filters: dict[str, Any]) -> None:
    one = sampler(5, temperature=temperature, **filters)
    assert run(one, array(1, 7, 3, 7, 7), 20) == [1] * 20


@pytest.mark.parametrize("settings", [{}, {"temperature": 0}, NEUTRAL, {"temperature": 0, "logit_bias": {0: -1}}])
@pytest.mark.parametrize(
    "logits", [array(*[math.nan] * 4), array(1, math.nan, 2, 3), array(*[-INF] * 4), array(1, INF, 2, -INF)]
)
def test_logits_that_leave_no_choice_name_the_step(settings: dict[str, Any], logits: NDArray[np.float32]) -> None:
    one = sampler(4, **settings)
    run(one, array(1, 2, 3, 4), 3)
    with pytest.raises(NumericalError, match="step 3"):
        one.sample(logits)
    assert one.state()["draws"] == 3


def test_a_single_possible_token_is_always_chosen() -> None:
    logits = np.full(5000, -INF, np.float32)
    logits[4321] = -3e38
    for settings in ({}, NEUTRAL, {"temperature": 0}, {"top_k": 0}, {"top_p": 0}, {"min_p": 1}):
        assert sampler(5000, **settings).sample(logits) == 4321


@pytest.mark.parametrize(
    ("last_n", "expected"),
    # The favourite, token 1, was said 4 tokens ago.
    [(-1, 2), (0, 1), (3, 1), (4, 2), (64, 2)],
)
@pytest.mark.parametrize("split", [0, 2, 5])
def test_penalty_window(last_n: int, expected: int, split: int) -> None:
    history = [1, 0, 0, 0]
    one = sampler(4, history[:split], temperature=0, repetition_penalty=1.5, penalty_last_n=last_n)
    for token in history[split:]:
        one.accept(token)
    assert one.sample(array(0, 1.2, 1.0, 0)) == expected


def test_sampling_counts_for_penalties_only_once_accepted() -> None:
    one = sampler(3, temperature=0, presence_penalty=1.0)
    logits = array(1.5, 1.0, 0)
    assert [one.sample(logits), one.sample(logits)] == [0, 0]
    one.accept(0)
    assert one.sample(logits) == 1


def test_the_seed_decides_and_zero_is_a_seed_like_any_other() -> None:
    logits = np.zeros(1000, np.float32)
    runs = {seed: run(sampler(1000, **NEUTRAL, seed=seed), logits, 10) for seed in (0, 1, 2, 2**64 - 1)}
    assert len({tuple(tokens) for tokens in runs.values()}) == 4
    for seed, tokens in runs.items():
        again = sampler(1000, **NEUTRAL, seed=seed)
        assert run(again, logits, 10) == tokens
        assert again.seed == seed


@pytest.mark.parametrize("seed", [None, -1])
def test_without_a_seed_each_process_gets_its_own_and_reports_it(seed: int | None) -> None:
    code = f"from edgellm.sampling import *; print(Sampler(SamplingParams(seed={seed}), 5).seed)"
    seeds = [
        int(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout)
        for _ in range(2)
    ]
    assert seeds[0] != seeds[1]
    logits = np.zeros(1000, np.float32)
    unset = sampler(1000, **NEUTRAL, seed=seed)
    assert run(sampler(1000, **NEUTRAL, seed=unset.seed), logits, 10) == run(unset, logits, 10)


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0},
        {"top_k": 1},
        NEUTRAL,
        {"top_p": 0.1},
        {"presence_penalty": 1.0},
        {"xtc_probability": 0.5},
        {"mirostat": 2},
        {"adaptive_target": 0.5},
    ],
)
def test_every_token_uses_one_draw_whatever_the_settings(settings: dict[str, Any]) -> None:
    one = sampler(100, **settings)
    run(one, np.zeros(100, np.float32), 7)
    state = one.state()
    assert (state["seed"], state["draws"]) == (1, 7)


@pytest.mark.parametrize(
    "settings",
    [
        {"repetition_penalty": 1.3, "penalty_last_n": 6},
        {"dry_multiplier": 5.0, "dry_allowed_length": 1},
        {"xtc_probability": 0.5},
        {"mirostat": 2, "mirostat_tau": 2.0},
        {"adaptive_target": 0.3},
    ],
)
def test_a_restored_sampler_goes_on_where_the_first_one_was(settings: dict[str, Any]) -> None:
    rng = np.random.default_rng(5)
    settings = {"temperature": 1.02, **settings}
    prompt = [3, 3, 7]
    one = sampler(50, prompt, **settings)
    tokens = [*prompt, *run(one, rng.standard_normal(50).astype(np.float32), 10)]
    restored = Sampler(SamplingParams(**settings), 50, tokens, one.state())
    for _ in range(20):
        logits = rng.standard_normal(50).astype(np.float32)
        assert run(one, logits, 1) == run(restored, logits, 1)
    assert one.state() == restored.state()


@pytest.mark.parametrize(
    "damage", [{"seed": -1}, {"seed": 2**64}, {"seed": 1.5}, {"draws": -1}, {"limit": "x"}, {"average": None}]
)
def test_a_damaged_state_is_refused(damage: dict[str, Any]) -> None:
    state = sampler(5).state()
    Sampler(SamplingParams(), 5, state=state)
    without = {name: value for name, value in state.items() if name not in damage}
    for bad in ({**state, **damage}, without):
        with pytest.raises(ArgumentError, match="state"):
            Sampler(SamplingParams(), 5, state=bad)


@pytest.mark.parametrize("settings", [{"temperature": 0}, {"top_k": 2}, {"top_p": 0.5}, {"min_p": 0.9}])
def test_bias_comes_before_every_filter(settings: dict[str, Any]) -> None:
    logits = array(9, 8, 1, 0)
    assert run(sampler(4, **settings, logit_bias={"2": 100}), logits, 20) == [2] * 20
    assert 0 not in run(sampler(4, **settings, logit_bias=[(0, -100), (1, False)]), logits, 20)
    assert run(sampler(4, **settings, logit_bias={0: -INF, 1: -INF, 2: -INF}), logits, 20) == [3] * 20


def test_bias_comes_before_penalties() -> None:
    # (1 + 1) / 2 = 1 loses to 1.2; 1 / 2 + 1 = 1.5 would win.
    one = sampler(2, [0], temperature=0, repetition_penalty=2.0, logit_bias={0: 1.0})
    assert one.sample(array(1, 1.2)) == 1


def test_ids_outside_the_vocabulary_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"token 10 does not exist.*0 to 9"):
        sampler(10, logit_bias={10: 1.0})
    for token in (-1, 10):
        with pytest.raises(VocabularyError, match=str(token)):
            sampler(10).accept(token)
        with pytest.raises(VocabularyError, match=str(token)):
            sampler(10, [1, token])


@pytest.mark.parametrize("logits", [np.zeros(9, np.float32), np.zeros(10), np.zeros((1, 10), np.float32)])
def test_logits_of_another_shape_are_refused(logits: NDArray[Any]) -> None:
    with pytest.raises(ArgumentError, match="float32"):
        sampler(10).sample(logits)


def test_logits_are_not_changed() -> None:
    logits = np.random.default_rng(1).standard_normal(3000).astype(np.float32)
    before = logits.copy()
    one = sampler(
        3000,
        [1, 2, 3],
        constraint=Rules(lambda seen: range(0, 3000, 2), 3000),
        repetition_penalty=1.5,
        presence_penalty=0.5,
        logit_bias={5: 3.0},
    )
    one.sample(logits)
    assert np.array_equal(before, logits)


@pytest.mark.parametrize(
    "neutral",
    [
        {"top_k": 0},
        {"top_k": 600},
        {"min_p": 0.0},
        {"top_p": 1.0},
        {"repetition_penalty": 1.0},
        {"presence_penalty": 0.0, "frequency_penalty": 0.0, "penalty_last_n": -1},
        {"repetition_penalty": 2.0, "penalty_last_n": 0},
        {"logit_bias": {}},
        {"logit_bias": {5: 0.0}},
        {"typical_p": 1.0},
        {"top_n_sigma": 0.0},
        {"top_n_sigma": -1},
        {"xtc_probability": 0.0, "xtc_threshold": 0.0},
        {"xtc_probability": 1.0, "xtc_threshold": 0.6},
        {"dynatemp_range": 0.0, "dynatemp_exponent": 3.0},
        {"mirostat": 0, "mirostat_tau": 0.0, "mirostat_eta": 1.0},
        {"adaptive_target": -1, "adaptive_decay": 0.5},
        {"dry_multiplier": 0.0, "dry_breakers": ["x", "yz"], "dry_allowed_length": 1},
        {"dry_multiplier": 2.0, "dry_last_n": 0, "dry_allowed_length": 1},
        {"dry_multiplier": 2.0, "dry_allowed_length": 60},
        {"samplers": SAMPLERS},
        {"samplers": []},
        {"samplers": ["temperature"], "top_k": 1, "presence_penalty": 9.0},
    ],
)
def test_neutral_settings_change_nothing(neutral: dict[str, Any]) -> None:
    logits = np.random.default_rng(3).standard_normal(600).astype(np.float32)
    plain = run(sampler(600, [1, 2], **NEUTRAL), logits, 50)
    assert run(sampler(600, [1, 2], **{**NEUTRAL, **neutral}), logits, 50) == plain


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (NEUTRAL, [0.4, 0.3, 0.2, 0.1]),
        ({**NEUTRAL, "temperature": 0.5}, [16 / 30, 9 / 30, 4 / 30, 1 / 30]),
        ({**NEUTRAL, "top_k": 3}, [4 / 9, 3 / 9, 2 / 9, 0]),
        ({**NEUTRAL, "top_p": 0.65}, [4 / 7, 3 / 7, 0, 0]),
        ({**NEUTRAL, "min_p": 0.4}, [4 / 9, 3 / 9, 2 / 9, 0]),
        # Filters before temperature: 2.0 would flatten the mass so that top_p kept three tokens.
        ({**NEUTRAL, "xtc_probability": 0.5, "xtc_threshold": 0.25}, [0.2, 0.4, 0.1 + 1 / 6, 0.05 + 1 / 12]),
        ({**NEUTRAL, "top_p": 0.65, "temperature": 2.0}, [2 / (2 + 3**0.5), 3**0.5 / (2 + 3**0.5), 0, 0]),
    ],
)
def test_tokens_come_as_often_as_their_probability(settings: dict[str, Any], expected: list[float]) -> None:
    logits = np.log(np.array([0.4, 0.3, 0.2, 0.1])).astype(np.float32)
    count = 6000
    tokens = run(sampler(4, **settings), logits, count)
    chi = 0.0
    for token, share in enumerate(expected):
        seen = tokens.count(token)
        assert share or not seen
        chi += (seen - share * count) ** 2 / (share * count) if share else 0.0
    # Three degrees of freedom: above 21 in 1 of 10,000 seeds.
    assert chi < 21


NASTY = st.one_of(
    st.floats(-20, 20, width=32),
    st.sampled_from([0.0, -0.0, 1.0, 3e38, -3e38, 1e-45, -INF]),
)
NUMBER = st.one_of(st.floats(0, 2), st.floats(0, allow_infinity=False))


@hypothesis.settings(max_examples=300)
@given(
    logits=st.lists(NASTY, min_size=1, max_size=40) | st.lists(st.floats(width=32), min_size=1, max_size=40),
    wish=st.fixed_dictionaries(
        {},
        optional={
            "temperature": NUMBER,
            "top_k": st.integers(-1, 50),
            "top_p": st.floats(0, 1),
            "min_p": st.floats(0, 1),
            "repetition_penalty": NUMBER,
            "frequency_penalty": st.floats(-100, 100),
            "presence_penalty": st.floats(-100, 100),
            "penalty_last_n": st.integers(-1, 5),
            "logit_bias": st.dictionaries(st.integers(0, 5), st.floats(max_value=1e308, allow_nan=False), max_size=5),
            "seed": st.integers(-1, 2**64 - 1),
            "typical_p": st.floats(0, 1),
            "top_n_sigma": NUMBER | st.just(-1.0),
            "xtc_probability": st.floats(0, 1),
            "xtc_threshold": st.floats(0, 1),
            "dynatemp_range": st.floats(0, 1e6),
            "dynatemp_exponent": NUMBER,
            "mirostat": st.sampled_from([0, 2]),
            "mirostat_tau": st.floats(0, 1000),
            "mirostat_eta": st.floats(0, 100),
            "adaptive_target": st.floats(-1, 1),
            "adaptive_decay": st.floats(0, 0.99),
            "dry_multiplier": NUMBER,
            "dry_base": st.floats(1, allow_infinity=False),
            "dry_allowed_length": st.integers(1, 4),
            "dry_last_n": st.integers(-1, 8),
            "samplers": st.permutations(SAMPLERS).flatmap(lambda names: st.integers(0, 11).map(lambda n: names[:n])),
        },
    ),
    prompt=st.lists(st.integers(0, 5), max_size=8),
    legal=st.none() | st.sets(st.integers(0, 39)),
)
def test_any_input_yields_a_possible_token_or_our_error(
    logits: list[float], wish: dict[str, Any], prompt: list[int], legal: set[int] | None
) -> None:
    values = array(*logits)
    try:
        one = Sampler(SamplingParams(**wish), len(logits), prompt, constraint=Rules(lambda seen: legal, 40))
        tokens = run(one, values, 3)
    except EdgeLLMError:
        return
    for token in tokens:
        assert 0 <= token < len(logits)
        assert values[token] > -INF
        assert legal is None or token in legal
