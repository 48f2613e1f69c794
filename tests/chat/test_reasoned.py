"""Answers that follow a schema, with and without reasoning before them."""

from __future__ import annotations

from typing import Any

import pytest

import edgellm
from edgellm.chat.recognise import recognise
from edgellm.reasoned import after_reasoning
from edgellm.structured import wanted
from tests.structured.toy import accepts
from tests.support.talk import ASK, OPENING, TEMPLATE, Say
from tests.support.tiny import CHATML

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
ANSWER = '{"a": 3}'


class NoTokens:
    def id_of(self, text: str) -> None:
        return None


@pytest.mark.parametrize("arguments", [{"schema": SCHEMA}, {"regex": r'\{"a": [0-9]\}'}, {"choices": [ANSWER]}])
def test_what_is_legal(arguments):
    grammar = wanted(**arguments)
    assert grammar is not None
    may = after_reasoning(grammar, recognise("<think>"), NoTokens(), opened=False)  # type: ignore[arg-type]
    must = after_reasoning(grammar, recognise("<think>"), NoTokens(), opened=True)  # type: ignore[arg-type]
    assert may is not None
    assert must is not None
    texts = [
        ANSWER,
        f"<think>\nHm {{.</think>\n\n{ANSWER}",
        f"Hm.</think>{ANSWER}",
        "<think>Hm",
        f"Hm {ANSWER}",
        "</think>no",
    ]
    assert [accepts(may, text) for text in texts] == [True, True, False, False, False, False]
    assert [accepts(must, text) for text in texts] == [False, True, True, False, False, False]


NAMED = {"type": "object", "properties": {"start": {"const": 1}}, "required": ["start"], "additionalProperties": False}


@pytest.mark.parametrize("opened", [True, False])
@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ({"schema": NAMED}, '{"start": 1}'),
        ({"choices": ["start", "stop"]}, "start"),
        ({"json": True}, "{}"),
        ({"regex": "[<a]+"}, "<a"),
        ({"grammar": 'start: "a" start | "b"'}, "aab"),
        ({"grammar": 'root ::= "a" root | text\ntext ::= "b"'}, "aab"),
        ({"grammar": "\n".join(["start: head", 'head: body BLANK "b"', 'body: "a"', 'BLANK: "-"'])}, "a-b"),
    ],
)
def test_no_name_in_a_grammar_is_in_the_way(say: Say, arguments: dict[str, Any], answer: str, opened: bool) -> None:
    opening = OPENING + "<think>\n" if opened else OPENING
    said = f"so</think>\n{answer}" if opened else f"<think>so</think>\n{answer}"
    reply = say(said, template=TEMPLATE.replace(OPENING, opening), opening=opening).chat(
        ASK, max_tokens=90, **arguments
    )
    assert (reply.reasoning, reply.text) == ("so", answer)


def test_reasoning_that_the_template_opens_comes_before_the_answer(say: Say) -> None:
    opening = OPENING + "<think>\n"
    model = say("so</think>\n" + ANSWER, template=TEMPLATE.replace(OPENING, opening), opening=opening)
    reply = model.chat(ASK, schema=SCHEMA)
    assert reply.parsed == {"a": 3}
    assert (reply.reasoning, reply.text, reply.finish_reason) == ("so", ANSWER, "stop")


@pytest.mark.parametrize(("said", "reasoning"), [(ANSWER, ""), (f"<think>so</think>{ANSWER}", "so")])
def test_a_model_may_reason_first(say: Say, said: str, reasoning: str) -> None:
    reply = say(said).chat(ASK, schema=SCHEMA)
    assert (reply.parsed, reply.reasoning) == ({"a": 3}, reasoning)


@pytest.mark.parametrize(
    ("template", "arguments"),
    [(TEMPLATE, {"enable_thinking": False}), (CHATML, {}), (TEMPLATE, {"reply_format": "raw"})],
)
def test_otherwise_the_answer_is_all_there_is(say: Say, template: str, arguments: dict[str, object]) -> None:
    reply = say(f"<think>so</think>{ANSWER}", template=template).chat(
        ASK, schema=SCHEMA, max_tokens=400, seed=2, temperature=0.5, **arguments
    )
    assert reply.reasoning == ""
    assert reply.raw.startswith("{")


def test_a_cut_in_the_reasoning_is_no_value(say: Say) -> None:
    opening = OPENING + "<think>\n"
    model = say("so</think>\n" + ANSWER, template=TEMPLATE.replace(OPENING, opening), opening=opening)
    reply = model.chat(ASK, schema=SCHEMA, max_tokens=4)
    with pytest.raises(edgellm.IncompleteOutputError):
        _ = reply.parsed
    assert not reply.stopped_thinking
