import math

import numpy as np
import pytest

from edgellm.errors import NumericalError, VocabularyError
from edgellm.sampling import logprobs


def test_values_of_a_known_distribution() -> None:
    logits = (np.log(np.array([0.1, 0.4, 0.2, 0.3])) + 5).astype(np.float32)
    result = logprobs(logits, 2, 3)
    assert result.token == 2
    assert result.logprob == pytest.approx(math.log(0.2), rel=1e-6)
    assert [token for token, _ in result.top] == [1, 3, 2]
    assert [math.exp(value) for _, value in result.top] == pytest.approx([0.4, 0.3, 0.2], rel=1e-6)


def test_a_large_vocabulary_agrees_with_the_definition() -> None:
    logits = (np.random.default_rng(2).standard_normal(20_000) * 4).astype(np.float32)
    wide = logits.astype(np.float64)
    expected = wide - np.log(np.exp(wide).sum())
    result = logprobs(logits, 17, 20)
    assert result.logprob == pytest.approx(expected[17])
    assert [token for token, _ in result.top] == np.argsort(-expected, kind="stable")[:20].tolist()
    assert [value for _, value in result.top] == pytest.approx(np.sort(expected)[::-1][:20])


def test_impossible_tokens_are_minus_infinity_and_never_among_the_top() -> None:
    logits = np.array([-math.inf, 3e38, -3e38], np.float32)
    result = logprobs(logits, 0, 3)
    assert result.logprob == -math.inf
    assert [token for token, _ in result.top] == [1, 2]
    assert result.top[0][1] == 0.0
    assert logprobs(logits, 1).top == ()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_without_probabilities_are_refused(bad: float) -> None:
    with pytest.raises(NumericalError):
        logprobs(np.array([0, bad], np.float32), 0)
    with pytest.raises(NumericalError):
        logprobs(np.full(2, -math.inf, np.float32), 0)


@pytest.mark.parametrize("chosen", [-1, 2])
def test_an_id_outside_the_vocabulary_is_refused(chosen: int) -> None:
    with pytest.raises(VocabularyError):
        logprobs(np.zeros(2, np.float32), chosen)
