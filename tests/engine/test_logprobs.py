"""Log-probabilities of what was chosen and of the prompt: the right token, the right place, little memory."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

from edgellm.errors import NumericalError
from tests.support.fake import hashed
from tests.support.rules import Rules

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


def with_logits(b, logits_after):
    """Make the fake give the logits that a function of the token before them returns."""
    plain = b.fake.step

    def step(batch):
        plain(batch)
        return np.array([logits_after(int(batch.tokens[row])) for row in batch.wanted], np.float32).reshape(
            len(batch.wanted), b.fake.n_vocab
        )

    b.fake.step = step
    return b


def spread(token: int) -> list[float]:
    """Logits that differ for every token and after every token."""
    return [math.sin(1.0 + token * 7 + i * 3) * 4 for i in range(16)]


def log_softmax(token: int) -> list[float]:
    values = np.array(spread(token), np.float32).astype(np.float64)
    return (values - values.max() - math.log(np.exp(values - values.max()).sum())).tolist()


@pytest.mark.parametrize("settings", [{}, {"temperature": 2.0, "seed": 3, "top_k": 3, "logit_bias": {1: 5.0}}])
@pytest.mark.parametrize("top", [0, 2, 16])
def test_each_chosen_token_has_the_models_own_log_probability(bench, settings, top):
    b = with_logits(bench(hashed(16), n_vocab=16), spread)
    generation = b.generate(PROMPT, 10, logprobs=top, **settings)
    assert generation.text == ""
    found = generation.logprobs
    assert [entry.token for entry in found] == generation.token_ids
    for before, entry in zip([PROMPT[-1], *generation.token_ids], found, strict=False):
        expected = log_softmax(before)
        assert entry.logprob == pytest.approx(expected[entry.token])
        best = sorted(range(16), key=lambda i, e=expected: -e[i])[:top]
        assert [token for token, _ in entry.top] == best
        assert [value for _, value in entry.top] == pytest.approx([expected[i] for i in best])


def test_nothing_is_reported_that_was_not_asked_for(bench):
    generation = bench(hashed()).generate(PROMPT, 3)
    assert generation.text == ""
    assert (generation.logprobs, generation.prompt_logprobs) == (None, None)


@pytest.mark.parametrize("n_batch", [64, 3, 1])
def test_each_prompt_token_but_the_first_has_one(bench, n_batch):
    b = with_logits(bench(hashed(16), n_vocab=16, n_batch=n_batch), spread)
    plain = b.ids(PROMPT, 5)
    for _ in range(2):  # the second time with a warm cache
        generation = b.generate(PROMPT, 5, prompt_logprobs=2)
        assert generation.text == ""
        assert generation.token_ids == plain
        first, *rest = generation.prompt_logprobs
        assert first is None
        assert [entry.token for entry in rest] == PROMPT[1:]
        for before, entry in zip(PROMPT, rest, strict=False):
            expected = log_softmax(before)
            assert entry.logprob == pytest.approx(expected[entry.token])
            assert [value for _, value in entry.top] == pytest.approx(sorted(expected, reverse=True)[:2])


def test_a_prompt_can_be_scored_without_a_completion(bench):
    b = with_logits(bench(hashed(16), n_vocab=16), spread)
    generation = b.generate(PROMPT, 0, prompt_logprobs=0)
    assert generation.text == ""
    assert generation.finish_reason == "length"
    assert [entry.top for entry in generation.prompt_logprobs[1:]] == [()] * 7


def test_a_prompt_of_one_token_has_nothing_to_score(bench):
    generation = bench(hashed()).generate([5], 2, prompt_logprobs=3)
    assert generation.text == ""
    assert generation.prompt_logprobs == [None]
    assert len(generation.token_ids) == 2


def test_scores_survive_preemption_and_company(bench):
    alone = bench(hashed(), n_ctx=128).generate(list(range(30)), 60, prompt_logprobs=2)
    assert alone.text == ""
    b = bench(hashed(), n_ctx=128, n_batch=16, n_pages=[9])
    others = [b.generate([i] * 12, 60) for i in (5, 6, 7)]
    scored = b.generate(list(range(30)), 60, prompt_logprobs=2)
    assert scored.text == ""
    assert scored.prompt_logprobs == alone.prompt_logprobs
    assert scored.token_ids == alone.token_ids
    del others


def test_masked_tokens_have_finite_log_probabilities(bench):
    b = with_logits(bench(hashed(16), n_vocab=16), lambda token: [-math.inf] * 12 + [0.0, 1.0, 2.0, 3.0])
    generation = b.generate([12, 13], 3, logprobs=10, prompt_logprobs=10, constraint=Rules(lambda seen: [12], 16))
    assert generation.text == ""
    assert generation.token_ids == [12] * 3
    for entry in [*generation.logprobs, *generation.prompt_logprobs[1:]]:
        assert math.isfinite(entry.logprob)
        assert [token for token, _ in entry.top] == [15, 14, 13, 12]


def test_an_impossible_token_of_the_prompt_is_minus_infinity(bench):
    b = with_logits(bench(hashed(16), n_vocab=16), lambda token: [-math.inf, *[0.0] * 15])
    generation = b.generate([3, 0, 3], 1, prompt_logprobs=1)
    assert generation.text == ""
    assert [entry.logprob for entry in generation.prompt_logprobs[1:]] == [-math.inf, pytest.approx(-math.log(15))]


def test_a_prompt_whose_logits_are_nan_fails_alone(bench):
    b = with_logits(bench(hashed(16), n_vocab=16), lambda token: [math.nan] * 16 if token == 9 else spread(token))
    b.fake.gate.clear()
    bad, good = b.generate(PROMPT, 5, prompt_logprobs=1), b.generate([1, 2], 1, logprobs=1)
    b.fake.gate.set()
    with pytest.raises(NumericalError):
        _ = bad.text
    assert good.text == ""
    assert len(good.logprobs) == 1


def test_a_long_prompt_is_scored_in_little_memory(bench):
    n_vocab, n_prompt = 32_000, 8000
    b = bench(hashed(), n_ctx=8192, n_batch=512, n_vocab=n_vocab)
    row = np.sin(np.arange(n_vocab, dtype=np.float32))
    b.fake.step = lambda batch: np.tile(row, (len(batch.wanted), 1))

    def peak(**scores) -> int:
        generation = b.generate([7] * n_prompt, 1, **scores)
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        assert generation.text == ""
        return tracemalloc.get_traced_memory()[1] - before

    b.fake.gate.clear()
    tracemalloc.start()
    try:
        b.fake.gate.set()
        plain = peak()
        scored = peak(logprobs=5, prompt_logprobs=5)
    finally:
        tracemalloc.stop()
    assert scored - plain < 10e6
