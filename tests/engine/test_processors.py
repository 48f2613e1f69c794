"""The caller's own functions on logits."""

from __future__ import annotations

import numpy as np
import pytest

from edgellm.errors import ArgumentError, CallbackError, NumericalError
from tests.support.fake import hashed
from tests.support.rules import Rules

PROMPT = [1, 2, 3]


def force(token: int):
    def processor(ids, logits):
        logits[:] = -np.inf
        logits[token] = 0.0

    return processor


def test_a_processor_sees_all_ids_and_the_models_logits(bench):
    b = bench(hashed())
    plain = b.ids(PROMPT, 4)
    seen = []

    def look(ids, logits):
        seen.append((list(ids), logits.copy()))
        ids.clear()

    assert b.ids(PROMPT, 4, processors=[look]) == plain
    assert [ids for ids, _ in seen] == [PROMPT + plain[:i] for i in range(4)]
    for token, (_, logits) in zip(plain, seen, strict=True):
        assert logits.dtype == np.float32
        assert logits.shape == (32,)
        assert int(logits.argmax()) == token


@pytest.mark.parametrize(
    "processor",
    [
        force(9),
        lambda ids, logits: [float(i == 9) for i in range(32)],
        lambda ids, logits: np.where(np.arange(32) == 9, 1e30, logits.astype(np.float64)),
        lambda ids, logits: -abs(np.arange(32) - 9),
    ],
)
def test_logits_may_be_changed_in_place_or_returned(bench, processor):
    assert bench(hashed()).ids(PROMPT, 2, processors=[processor]) == [9, 9]


def test_processors_run_in_order_and_before_mask_and_bias(bench):
    assert bench(hashed()).ids(PROMPT, 1, processors=[force(9), force(8)]) == [8]
    double = [lambda ids, logits: logits + np.eye(32)[8] * 50]
    assert bench(hashed()).ids(PROMPT, 2, processors=double, logit_bias={7: 100}) == [7, 7]
    assert bench(hashed()).ids(PROMPT, 2, processors=double, constraint=Rules(lambda seen: [5])) == [5, 5]


def test_a_failing_processor_fails_its_request_alone(bench):
    b = bench(hashed())
    alone = b.ids([5, 6], 10)

    def third(ids, logits):
        if len(ids) == 5:
            raise KeyError("oh no")

    b.fake.gate.clear()
    good, bad = b.generate([5, 6], 10), b.generate(PROMPT, 10, processors=[third])
    b.fake.gate.set()
    with pytest.raises(CallbackError, match=r"third failed: KeyError: 'oh no'") as caught:
        _ = bad.text
    assert isinstance(caught.value.__cause__, KeyError)
    assert len(bad.token_ids) == 2
    assert (good.text, good.token_ids) == ("", alone)


@pytest.mark.parametrize("wrong", [np.zeros(31), "text", [[0.0] * 32], 5, {"a": 1}])
def test_what_is_no_logits_is_refused(bench, wrong):
    def odd(ids, logits):
        return wrong

    with pytest.raises(ArgumentError, match="logits processor odd must return None or numbers of shape"):
        bench(hashed()).ids(PROMPT, 1, processors=[odd])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_logits_that_leave_no_choice_name_the_processors(bench, value):
    with pytest.raises(NumericalError, match="step 0: the logits processors left"):
        bench(hashed()).ids(PROMPT, 1, processors=[lambda ids, logits: np.full(32, value)])


def test_log_probabilities_are_those_before_processors(bench):
    b = bench(hashed())
    first, second = b.generate(PROMPT, 1, logprobs=1), b.generate(PROMPT, 1, logprobs=1, processors=[force(9)])
    assert (first.text, second.text) == ("", "")
    assert second.token_ids == [9]
    assert second.logprobs[0].top == first.logprobs[0].top
    assert second.logprobs[0].logprob < first.logprobs[0].logprob
