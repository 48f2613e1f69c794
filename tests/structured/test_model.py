"""Structured output of whole models: random weights, scripted logits, and a real one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import jsonschema
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

import edgellm
from tests.structured.schemas import schemas
from tests.support.fake import FakeBackend
from tests.support.tiny import BOS, CHATML, END, EOS, TURN, UNK, first_piece, vocabulary, write_tiny

PIECES = ['{"', ' {"', '": ', "  ", "\n  ", "}\n", '"}', "true", "12"]
CHAT = [{"role": "user", "content": "hello"}]
ITEM = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"enum": ["x", "yy", None]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


@pytest.fixture(scope="session")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = vocabulary(PIECES) | {"tokenizer.chat_template": CHATML}
    return write_tiny(tmp_path_factory.mktemp("structured") / "tiny.gguf", vocab=words)


@pytest.fixture(scope="session")
def model(file: Path) -> Iterator[edgellm.Model]:
    with edgellm.Model(file, backend="reference") as m:
        yield m


Liking = Callable[[list[int]], edgellm.Model]


@pytest.fixture
def liking(file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Liking]:
    """A factory of models that like some tokens best, in this order, whatever came before."""
    opened = []

    def make(favourites: list[int]) -> edgellm.Model:
        backend = FakeBackend(lambda history: 0)
        monkeypatch.setattr("edgellm.loading.get_backend", lambda name: backend)
        opened.append(edgellm.Model(file))
        liked = np.zeros(opened[-1].info.n_vocab, np.float32)
        liked[favourites] = 100.0 - np.arange(len(favourites))
        monkeypatch.setattr(backend.executable, "step", lambda batch: np.tile(liked, (len(batch.wanted), 1)))
        return opened[-1]

    yield make
    for m in opened:
        m.close()


# What comes out


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(schema=schemas(), seed=st.integers(0, 2**32), temperature=st.sampled_from([0.0, 2.0]))
def test_random_weights_write_what_fits_any_schema(model, schema, seed, temperature):
    flat = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
    try:
        generation = model.generate("x", schema=schema, max_tokens=60, temperature=temperature, seed=seed, **flat)
    except edgellm.GrammarError:
        assume(False)
    text = generation.text
    event(str(generation.finish_reason))
    if generation.finish_reason == "stop":
        assert generation.parsed == json.loads(text)
        jsonschema.validate(generation.parsed, schema, jsonschema.Draft202012Validator)
    else:
        assert (generation.finish_reason, len(generation.token_ids)) == ("length", 60)
        with pytest.raises(edgellm.IncompleteOutputError, match=r"'length'.*max_tokens"):
            _ = generation.parsed


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0},
        {"temperature": 2, "top_k": 0, "top_p": 1, "min_p": 0},
        {"repetition_penalty": 1.8, "frequency_penalty": 2, "presence_penalty": 2, "penalty_last_n": -1},
        {"logit_bias": {TURN: 100, END: 100, EOS: 100, first_piece(): -100}},
        {"top_k": 1},
        {"stop": ["\n\n", "zzz"]},
    ],
)
def test_settings_change_the_choice_and_not_what_is_legal(model, settings):
    for seed in range(5):
        generation = model.generate("x", schema=ITEM, seed=seed, max_tokens=100, **settings)
        jsonschema.validate(generation.parsed, ITEM)
        assert generation.finish_reason == "stop"


@pytest.mark.parametrize(
    ("asked", "pattern"),
    [
        ({"regex": r"\d{3}-[a-f]+!"}, r"\d{3}-[a-f]+!"),
        ({"choices": ["yes", "no", "no way"]}, "yes|no|no way"),
        ({"choices": ["é€", "ü"]}, "é€|ü"),
        ({"grammar": 'root ::= "(" root ")" | "x"'}, r"\(*x\)*"),
        ({"grammar": 'start: "(" start ")" | "x"'}, r"\(*x\)*"),
        ({"json": True}, r"(?s:\{.*\})"),
    ],
)
def test_every_form_of_structure(model, asked, pattern):
    for seed in range(3):
        generation = model.generate("x", seed=seed, max_tokens=100, **asked)
        text = generation.text
        if generation.finish_reason == "stop":
            assert re.fullmatch(pattern, text)
            assert generation.parsed == (json.loads(text) if "json" in asked else text)


def test_streams_batches_and_repetitions_give_the_same(model):
    keywords = {"schema": ITEM, "seed": 7, "temperature": 2.0, "max_tokens": 100}
    alone = model.generate("hello world", **keywords)
    text, ids = alone.text, alone.token_ids
    assert "".join(model.generate("hello world", **keywords)) == text
    others = [model.generate("hello", regex="[ab]{30}", seed=n) for n in range(4)]
    again = model.generate("hello world", **keywords)
    free = model.generate("hello", max_tokens=20)
    assert (again.text, again.token_ids) == (text, ids)
    assert all(re.fullmatch("[ab]{30}", other.text) for other in others)
    assert free.finish_reason in ("stop", "length")


def test_a_prompt_from_the_prefix_cache_changes_nothing(model):
    prompt = "hello world " * 12
    first = model.generate(prompt, schema=ITEM, seed=3)
    text = first.text
    second = model.generate(prompt, schema=ITEM, seed=3)
    assert second.text == text
    assert second.usage.cached_tokens > 0


def test_calls_from_many_threads_do_not_mix(model):
    def ask(n: int) -> bool:
        return (
            re.fullmatch(f"{n}[a-z]{{8}}{n}", model.generate("x", regex=f"{n}[a-z]{{8}}{n}", seed=n).text) is not None
        )

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(ask, range(16)))


def test_chat_takes_the_same_arguments(model):
    assert model.chat(CHAT, choices=["yes", "no"]).text in ("yes", "no")
    jsonschema.validate(model.chat(CHAT, schema=ITEM, max_tokens=100).parsed, ITEM)


# Ends


def test_the_text_ends_by_itself_where_nothing_can_follow(model):
    generation = model.generate("x", choices=["abc"])
    assert (generation.text, generation.finish_reason) == ("abc", "stop")
    assert not {EOS, END} & set(generation.token_ids)


def test_a_limit_leaves_the_beginning_of_a_text_that_fits(model):
    for n in range(1, 9):
        generation = model.generate("x", schema={"const": {"ab": "c"}}, max_tokens=n, temperature=0)
        text = generation.text
        assert re.fullmatch(r'\{\s*("(a(b("\s*(:\s*("(c("\s*\}?)?)?)?)?)?)?)?)?', text)
        if generation.finish_reason == "length":
            with pytest.raises(edgellm.IncompleteOutputError):
                _ = generation.parsed


def test_a_stop_string_ends_the_text_and_its_value_is_not_complete(model):
    generation = model.generate("x", schema={"const": "abXYcd"}, stop="XY")
    assert (generation.text, generation.finish_reason) == ('"ab', "stop")
    with pytest.raises(edgellm.IncompleteOutputError, match="stop string"):
        _ = generation.parsed


def test_a_cancelled_text_has_no_value(model):
    generation = model.generate("x", regex="a{200}")
    generation.cancel()
    assert generation.finish_reason == "cancelled"
    with pytest.raises(edgellm.IncompleteOutputError, match="'cancelled'"):
        _ = generation.parsed


def test_a_text_without_a_schema_has_no_value(model):
    with pytest.raises(edgellm.ArgumentError, match="schema="):
        _ = model.generate("x", max_tokens=1).parsed


# Models that like the wrong tokens best


def byte(char: str) -> int:
    return 5 + ord(char)


def piece(text: str) -> int:
    return first_piece() + PIECES.index(text)


def test_a_lover_of_white_space_gets_to_the_end(liking):
    schema = {
        "type": "object",
        "properties": {"a": {"const": [1, {}]}},
        "required": ["a"],
        "additionalProperties": False,
    }
    for favourites in ([byte(" "), byte("\n"), byte("\t")], [piece("\n  "), piece("  ")], [byte("\n"), piece("  ")]):
        generation = liking(favourites).generate("x", schema=schema, temperature=0, max_tokens=400)
        text = generation.text
        assert generation.finish_reason == "stop"
        assert generation.parsed == {"a": [1, {}]}
        assert text == text.strip()
        assert max(map(len, re.findall(r"\s+", text))) <= 21


@pytest.mark.parametrize("favourites", [[UNK, BOS, TURN, END, EOS], [END, EOS], [TURN]])
def test_control_and_unknown_tokens_are_no_text(liking, favourites):
    m = liking(favourites)
    generation = m.generate("x", schema=ITEM, temperature=0)
    jsonschema.validate(generation.parsed, ITEM)
    assert not {UNK, BOS, TURN} & set(generation.token_ids)


def test_the_end_is_taken_as_soon_as_it_is_legal(liking):
    generation = liking([END]).generate("x", regex="a{3,5}", temperature=0)
    assert (generation.text, generation.finish_reason) == ("aaa", "stop")
    assert generation.token_ids[-1] == END


def test_a_token_with_a_leading_space_does_not_begin_a_value(liking):
    generation = liking([piece(' {"'), piece('{"')]).generate("x", schema=ITEM, temperature=0, max_tokens=100)
    assert generation.text.startswith('{"')
    assert generation.token_ids[0] == piece('{"')


def test_where_a_bias_leaves_no_legal_token_one_text_fails_and_the_model_lives(model):
    with pytest.raises(edgellm.GrammarError):
        _ = model.generate("x", regex="a", logit_bias=dict.fromkeys(range(model.info.n_vocab), -np.inf)).text
    assert model.generate("x", regex="a").text == "a"


# Requests that cannot be


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"schema": {}, "json": True}, edgellm.ArgumentError, "schema and json are given"),
        ({"regex": "a", "choices": ["a"], "grammar": "x"}, edgellm.ArgumentError, "regex and grammar and choices"),
        ({"json": {"type": "object"}}, edgellm.ArgumentError, "json must be True or False.*schema="),
        ({"choices": []}, edgellm.ArgumentError, "choices is empty"),
        ({"choices": "yes"}, edgellm.ArgumentError, "choices must be a sequence of texts"),
        ({"choices": ["a", ""]}, edgellm.ArgumentError, "not empty"),
        ({"choices": ["a", 1]}, edgellm.ArgumentError, "choices must hold texts"),
        ({"choices": map(str, range(20_000))}, edgellm.GrammarError, "20000 texts"),
        ({"regex": 5}, edgellm.ArgumentError, "regex must be a text"),
        ({"regex": "("}, edgellm.GrammarError, "(?s)regex: .*unclosed group"),
        ({"regex": "(?=a)"}, edgellm.GrammarError, "(?s)regex: .*look-ahead"),
        ({"regex": "(" * 60_000 + ")" * 60_000}, edgellm.GrammarError, "regex"),
        ({"regex": "a" * 300_000}, edgellm.GrammarError, "limit of 262144"),
        ({"regex": "\ud800"}, edgellm.GrammarError, "lone surrogate"),
        ({"regex": "[^\\x00-\\U0010ffff]"}, edgellm.GrammarError, "regex"),
        ({"schema": {"not": {}}}, edgellm.GrammarError, r'"not" at \$'),
        ({"schema": "nonsense"}, edgellm.GrammarError, "not JSON"),
        ({"grammar": "root ::= x"}, edgellm.GrammarError, "x is not defined"),
    ],
)
def test_what_cannot_be_is_refused_before_the_first_token(model, asked, error, message):
    with pytest.raises(error, match=message):
        model.generate("x", **asked)


def test_a_model_without_a_vocabulary_has_no_structured_output(tmp_path):
    path = write_tiny(tmp_path / "ids.gguf")
    with edgellm.Model(path, backend="reference") as m, pytest.raises(edgellm.VocabularyError):
        m.generate([1], json=True)


def test_text_that_begins_afresh_loses_no_space_that_the_grammar_asks_for(tmp_path):
    """SentencePiece's dummy prefix: after a control token the first space of the first word is not shown."""
    words = vocabulary([" yes", "yes"], add_space_prefix=True) | {"tokenizer.chat_template": CHATML}
    with edgellm.Model(write_tiny(tmp_path / "m.gguf", vocab=words), backend="reference") as m:
        end = m.tokenize("<s>x<|im_end|>", parse_special=True)
        for seed in range(20):
            assert m.generate(end, choices=["yes"], seed=seed, temperature=2.0, top_k=0, min_p=0).text == "yes"
            assert m.generate(end, choices=[" yes"], seed=seed, temperature=2.0, top_k=0, min_p=0).text == " yes"


def test_the_vocabulary_is_prepared_once(model, monkeypatch):
    model.generate("x", choices=["a"]).close()
    monkeypatch.setattr("edgellm.constraints.token_table", None)
    assert model.generate("x", choices=["b"]).text == "b"


# A real model


@dataclass
class Person:
    name: str
    age: int
    mood: Literal["happy", "sad"] = "happy"


def test_a_real_model_writes_a_dataclass(model_path):
    question = [{"role": "user", "content": "Invent a person with a name, an age and a mood. Answer in JSON."}]
    with edgellm.Model(model_path("smollm2-135m-instruct"), n_ctx=512) as m:
        for settings in ({"temperature": 0}, {"temperature": 2.0, "top_k": 0, "seed": 1}):
            generation = m.chat(question, schema=Person, max_tokens=120, **settings)
            if generation.text and generation.finish_reason == "stop":
                person = generation.parsed
                assert type(person) is Person
                assert person == Person(**json.loads(generation.text))
        assert isinstance(m.chat(question, schema=Person, max_tokens=120, temperature=0).parsed, Person)
        answer = m.generate("The capital of France is the city of", choices=[" Rome", " Paris", " Oslo"], temperature=0)
        assert answer.parsed == " Paris"
