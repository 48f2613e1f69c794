"""gpt-oss's format in a model, where all its marks are control tokens."""

from __future__ import annotations

import pytest

from tests.support.talk import ASK, Say

OPENING = "!<|start|>assistant"
TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m.role }}<|channel|>final<|message|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}!<|start|>assistant{% endif %}"
)
THOUGHT = "<|channel|>analysis<|message|>I think.<|end|><|start|>assistant"
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
TOOL = {"name": "f", "parameters": SCHEMA}


@pytest.fixture
def speak(say: Say) -> Say:
    return lambda *replies: say(*replies, template=TEMPLATE, opening=OPENING)


def test_reasoning_and_answer(speak: Say) -> None:
    reply = speak(THOUGHT + "<|channel|>final<|message|>Hello.<|return|>").chat(ASK)
    assert (reply.reasoning, reply.text, reply.finish_reason) == ("I think.", "Hello.", "stop")


@pytest.mark.parametrize("choice", ["auto", "required", "f"])
@pytest.mark.parametrize(
    "header", ["<|channel|>commentary to=functions.f <|constrain|>json", " to=functions.f<|channel|>commentary json"]
)
def test_a_call(speak: Say, choice: str, header: str) -> None:
    reply = speak(THOUGHT + header + '<|message|>{"a": 3}<|call|>').chat(ASK, tools=[TOOL], tool_choice=choice)
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [("f", {"a": 3})]
    assert (reply.reasoning, reply.text, reply.finish_reason) == ("I think.", "", "tool_calls")


def test_a_call_is_held_to_its_schema(speak: Say) -> None:
    said = THOUGHT + '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"b": 3}<|call|>'
    reply = speak(said).chat(ASK, tools=[TOOL], max_tokens=400, seed=1)
    (call,) = reply.tool_calls
    assert call.name == "f"
    assert not call.complete or call.arguments.keys() == {"a"}


def test_an_answer_that_follows_a_schema(speak: Say) -> None:
    reply = speak('{"a": 3}<|return|>').chat(ASK, schema=SCHEMA, max_tokens=400, seed=1)
    assert set(reply.parsed) == {"a"}
    assert reply.reasoning == ""
