import math
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgellm.errors import GrammarError, OutOfMemoryError
from edgellm.sampling import Sampler, SamplingParams
from tests.support.rules import Rules

INF = math.inf
NEUTRAL: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
SETTINGS = [{"temperature": 0}, {}, {"top_k": 1}, {"top_p": 0.01}, {"min_p": 1.0}, NEUTRAL]


def sampler(rules: Rules, **settings: Any) -> Sampler:
    return Sampler(SamplingParams(**{"seed": 1, **settings}), rules.n_vocab, constraint=rules)


def array(*values: float) -> NDArray[np.float32]:
    return np.array(values, np.float32)


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("bias", [{}, {0: 100}, {3: -100}])
def test_the_choice_is_among_legal_tokens_whatever_the_settings(
    settings: dict[str, Any], bias: dict[int, float]
) -> None:
    one = sampler(Rules(lambda seen: [3], 4), **settings, logit_bias=bias)
    assert [one.sample(array(9, -50, 8, 0)) for _ in range(20)] == [3] * 20


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_constraint_that_allows_everything_changes_nothing(settings: dict[str, Any]) -> None:
    logits = np.random.default_rng(3).standard_normal(500).astype(np.float32)
    free = Sampler(SamplingParams(**{"seed": 1, **settings}), 500)
    for rule in (lambda seen: None, lambda seen: range(500)):
        one = sampler(Rules(rule, 500), **settings)
        free_again = Sampler(free.params, 500)
        assert [one.sample(logits) for _ in range(20)] == [free_again.sample(logits) for _ in range(20)]


def test_a_constraint_sees_accepted_tokens_but_not_the_prompt() -> None:
    rules = Rules(lambda seen: [len(seen)], 4, length=3)
    one = Sampler(SamplingParams(repetition_penalty=2.0), 4, [3, 3], constraint=rules)
    tokens = []
    while not one.finished:
        tokens.append(one.sample(array(1, 1, 1, 9)))
        one.sample(array(1, 1, 1, 9))
        one.accept(tokens[-1])
    assert tokens == rules.seen == [0, 1, 2]


def test_a_sampler_without_a_constraint_is_never_finished() -> None:
    one = Sampler(SamplingParams(), 4)
    one.accept(1)
    assert not one.finished


@pytest.mark.parametrize("settings", [{"temperature": 0}, {}])
@pytest.mark.parametrize("allowed", [[], [1]])
def test_a_dead_end_is_an_error_of_the_grammar(settings: dict[str, Any], allowed: list[int]) -> None:
    one = sampler(Rules(lambda seen: allowed, 3), **settings)
    with pytest.raises(GrammarError, match="step 0"):
        one.sample(array(1, -INF, 2))


def test_a_bias_that_forbids_all_legal_tokens_is_a_dead_end() -> None:
    one = sampler(Rules(lambda seen: [1, 2], 4), logit_bias={1: False, 2: False})
    with pytest.raises(GrammarError, match="step 0"):
        one.sample(array(1, 2, 3, 4))


def test_a_mask_shorter_than_the_vocabulary_forbids_the_rest() -> None:
    rules = Rules(lambda seen: [0, 31], 100)
    rules.n_vocab = 32
    one = Sampler(SamplingParams(temperature=0), 100, constraint=rules)
    assert one.sample(np.arange(100, dtype=np.float32)) == 31


@pytest.mark.parametrize("settings", [{"temperature": 0}, {}])
def test_what_a_constraint_raises_becomes_ours(settings: dict[str, Any]) -> None:
    def broken(seen: list[int]) -> list[int]:
        raise (MemoryError("grammar"), GrammarError("too deep"), OutOfMemoryError("full"))[len(seen)]

    one = sampler(Rules(broken, 3), **settings)
    with pytest.raises(GrammarError, match="MemoryError: grammar") as caught:
        one.sample(array(1, 2, 3))
    assert isinstance(caught.value.__cause__, MemoryError)
    one.accept(0)
    with pytest.raises(GrammarError, match=r"^too deep$"):
        one.sample(array(1, 2, 3))
    one.accept(0)
    with pytest.raises(OutOfMemoryError, match=r"^full$"):
        one.sample(array(1, 2, 3))


def test_the_error_of_a_constraint_is_raised_whenever_it_appears() -> None:
    rules = Rules(lambda seen: [0], 2)
    one = sampler(rules)
    rules.error = GrammarError("lost")
    with pytest.raises(GrammarError, match="lost"):
        one.sample(array(0, 0))
    with pytest.raises(GrammarError, match="lost"):
        one.accept(0)


def test_a_mask_is_prepared_once_per_token_and_used_for_every_sample_until_the_next() -> None:
    rules = Rules(lambda seen: [len(seen)], 3)
    one = sampler(rules, temperature=0)
    with ThreadPoolExecutor(1) as threads:
        for step in range(3):
            one.prepare(threads.submit)
            one.prepare(threads.submit)
            assert [one.sample(array(0, 0, 0)) for _ in range(2)] == [step, step]
            one.accept(step)
    assert rules.masks == 3


def test_an_error_of_a_prepared_mask_is_raised_by_sample() -> None:
    def broken(seen: list[int]) -> list[int]:
        raise ValueError("odd")

    one = sampler(Rules(broken, 3))
    with ThreadPoolExecutor(1) as threads:
        one.prepare(threads.submit)
        with pytest.raises(GrammarError, match="ValueError: odd"):
            one.sample(array(1, 2, 3))


def test_without_a_thread_the_mask_is_computed_by_sample() -> None:
    def none_left(function: Any) -> Future[Any]:
        raise RuntimeError("cannot schedule new futures after shutdown")

    one = sampler(Rules(lambda seen: [1], 3), temperature=0)
    one.prepare(none_left)
    assert one.sample(array(5, 0, 5)) == 1
