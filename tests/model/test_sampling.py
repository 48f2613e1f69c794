"""`Model.generate` and how tokens are chosen: settings, log-probabilities, processors, on a tiny model."""

from __future__ import annotations

import math

import numpy as np
import pytest

import edgellm
from tests.support.tiny import CHATML, vocabulary, write_tiny

PROMPT = [5, 80, 21, 33, 90, 4, 17]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    vocab = vocabulary() | {"tokenizer.chat_template": CHATML}
    with edgellm.Model(write_tiny(tmp_path_factory.mktemp("model") / "m.gguf", vocab=vocab), backend="reference") as m:
        yield m


def ids_of(generation) -> list[int]:
    for _ in generation:
        pass
    return generation.token_ids


def log_softmax(rows):
    wide = rows.astype(np.float64)
    wide -= wide.max(axis=1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))


def test_log_probabilities_are_those_of_the_models_logits(model):
    generation = model.generate(PROMPT, max_tokens=6, seed=3, temperature=1.5, logprobs=3, prompt_logprobs=3)
    ids = ids_of(generation)
    tokens = PROMPT + ids
    expected = log_softmax(model.logits(tokens[:-1]))
    first, *prompt = generation.prompt_logprobs
    assert first is None
    entries = prompt + generation.logprobs
    assert [entry.token for entry in entries] == tokens[1:]
    for row, entry in zip(expected, entries, strict=True):
        assert entry.logprob == pytest.approx(row[entry.token], rel=1e-6)
        assert [token for token, _ in entry.top] == np.argsort(-row, kind="stable")[:3].tolist()
        assert entry.logprob <= entry.top[0][1]


def test_chat_reports_them_too(model):
    generation = model.chat([{"role": "user", "content": "hello"}], max_tokens=3, logprobs=0, prompt_logprobs=1)
    ids = ids_of(generation)
    assert [entry.token for entry in generation.logprobs] == ids
    assert len(generation.prompt_logprobs) == generation.usage.prompt_tokens


@pytest.mark.parametrize("name", ["logprobs", "prompt_logprobs"])
@pytest.mark.parametrize("value", [-1, True, 1.5, "3", 10**6])
def test_senseless_counts_are_refused(model, name, value):
    with pytest.raises(edgellm.ArgumentError, match=name):
        model.generate("hello", **{name: value})


@pytest.mark.parametrize("value", [5, None, print, [None], ["print"], "print"])
def test_what_are_no_functions_is_refused(model, value):
    with pytest.raises(edgellm.ArgumentError, match="logits_processors must be a sequence of functions"):
        model.generate("hello", logits_processors=value)


def test_processors_may_use_the_tokenizer_and_see_the_prompt(model):
    a, b = (model.tokenize(letter, add_special=False)[-1] for letter in "AB")
    seen = []

    def alternate(ids, logits):
        seen.append(ids)
        logits[b if ids[-1] == a else a] = 1e6

    generation = model.generate("hello", max_tokens=4, logits_processors=[alternate])
    assert generation.text == "ABAB"
    assert seen[0] == model.tokenize("hello")
    assert seen[2] == [*seen[0], a, b]


def test_a_failing_processor_leaves_the_model_alive(model):
    def broken(ids, logits):
        raise LookupError("no such table")

    with pytest.raises(edgellm.CallbackError, match="broken failed: LookupError: no such table"):
        _ = model.generate("hello", max_tokens=4, logits_processors=[broken]).text
    assert len(ids_of(model.generate(PROMPT, max_tokens=2))) == 2


@pytest.mark.parametrize(
    "settings",
    [
        {"typical_p": 0.5},
        {"top_n_sigma": 1.0},
        {"xtc_probability": 0.5, "xtc_threshold": 0.05},
        {"dynatemp_range": 0.5},
        {"mirostat": 2},
        {"adaptive_target": 0.3},
        {"dry_multiplier": 0.8, "dry_breakers": ["hello wo", "\n"]},
        {"samplers": ["temperature", "min_p"]},
    ],
)
def test_a_seed_repeats_every_sampler_whatever_is_cached(model, settings):
    def draw(seed):
        generation = model.generate(PROMPT * 5, max_tokens=12, temperature=1.02, seed=seed, **settings)
        return ids_of(generation), generation.seed

    first = draw(0)
    assert first[1] == 0
    assert draw(0) == draw(0) == first
    ids, seed = draw(None)
    assert draw(seed) == (ids, seed)


def test_dry_breakers_are_texts(model):
    letters = {letter: model.tokenize(letter, add_special=False)[-1] for letter in "abcXY"}
    text = "abcXabY" * 2
    ids = [letters[letter] for letter in text + "abcX"]

    def favourite(_ids, logits):
        logits[:] = -50.0
        logits[[letters["a"], letters["X"]]] = 4.0, 3.0

    def next_token(**settings):
        return ids_of(model.generate(ids, max_tokens=1, temperature=0, logits_processors=[favourite], **settings))[0]

    assert next_token() == letters["a"]
    assert next_token(dry_multiplier=2.0) == letters["X"]
    assert next_token(dry_multiplier=2.0, dry_breakers=["cX"]) == letters["a"]
    assert next_token(dry_multiplier=2.0, dry_breakers=["bc"]) == letters["a"]
    assert next_token(dry_multiplier=2.0, dry_breakers=["Xa", "Q"]) == letters["X"]
    assert next_token(dry_multiplier=2.0, dry_breakers=[]) == letters["X"]


def test_a_model_without_a_vocabulary_takes_dry_too(tmp_path):
    with edgellm.Model(write_tiny(tmp_path / "ids.gguf"), backend="reference") as model:
        assert len(ids_of(model.generate([1, 2, 1], max_tokens=3, dry_multiplier=1.0))) == 3


def test_scores_are_finite_where_the_model_is(model):
    generation = model.generate(PROMPT, max_tokens=3, top_k=1, logprobs=10, prompt_logprobs=10)
    ids_of(generation)
    for entry in [*generation.logprobs, *generation.prompt_logprobs[1:]]:
        assert math.isfinite(entry.logprob)
        assert len(entry.top) == 10
        assert all(math.isfinite(value) for _, value in entry.top)


def test_a_prompt_that_never_ran_has_no_scores(tmp_path):
    with edgellm.Model(write_tiny(tmp_path / "m.gguf"), backend="reference", n_ctx=64, overflow="stop") as model:
        generation = model.generate([1] * 100, logprobs=1, prompt_logprobs=1)
        assert ids_of(generation) == generation.logprobs == generation.prompt_logprobs == []
