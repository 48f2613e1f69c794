"""What `chat` returns: reasoning, answer and calls, as they come and as a whole."""

from __future__ import annotations

import asyncio
import json

import pytest

import edgellm
from edgellm.chat.events import ContentDelta, ReasoningDelta, ToolCallDelta, ToolCallStart
from tests.support.talk import ASK, OPENING, TEMPLATE, Say

TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in "fg"]
TWO = (
    '<think>Hm, well.</think> I look.<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    '<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>'
)


def test_the_parts_of_a_reply(say: Say) -> None:
    reply = say(TWO).chat(ASK, tools=TOOLS)
    assert reply.reasoning == "Hm, well."
    assert reply.text == reply.content == "I look."
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [("f", {"a": 1}), ("g", {})]
    assert reply.finish_reason == "tool_calls"
    assert reply.raw == TWO
    assert reply.stopped_thinking


def test_two_calls_streamed(say: Say) -> None:
    events = list(say(TWO).chat(ASK, tools=TOOLS).events())
    assert "".join(e.text for e in events if isinstance(e, ReasoningDelta)) == "Hm, well."
    assert "".join(e.text for e in events if isinstance(e, ContentDelta)) == "I look."
    calls = [e for e in events if isinstance(e, ToolCallStart | ToolCallDelta)]
    assert [e.index for e in calls] == sorted(e.index for e in calls)
    assert [(e.index, e.name) for e in calls if isinstance(e, ToolCallStart)] == [(0, "f"), (1, "g")]
    for index, arguments in enumerate([{"a": 1}, {}]):
        own = [e for e in calls if e.index == index]
        assert isinstance(own[0], ToolCallStart)
        assert own[0].id
        pieces = [e.arguments for e in own[1:] if isinstance(e, ToolCallDelta)]
        assert len(pieces) == len(own) - 1
        assert json.loads("".join(pieces)) == arguments


def test_chunks_are_the_answer_alone_and_every_way_to_read_agrees(say: Say) -> None:
    model = say(TWO)
    reply = model.chat(ASK, tools=TOOLS)
    chunks = list(reply)
    assert "".join(chunks) == reply.text == "I look."
    assert list(reply) == []
    assert len(list(reply.events())) == len(list(reply.events())) > len(chunks)
    half = model.chat(ASK, tools=TOOLS)
    first = next(half)
    assert first + "".join(half) == "I look."


def test_asyncio(say: Say) -> None:
    model = say(TWO)

    async def read() -> tuple[str, int]:
        chunks = [chunk async for chunk in model.chat(ASK, tools=TOOLS)]
        events = [event async for event in model.chat(ASK, tools=TOOLS).events()]
        return "".join(chunks), sum(isinstance(event, ToolCallStart) for event in events)

    assert asyncio.run(read()) == ("I look.", 2)


def test_the_message_goes_behind_those_it_answers(say: Say) -> None:
    model = say(TWO)
    message = model.chat(ASK, tools=TOOLS).message
    assert message["role"] == "assistant"
    assert message["content"] == "I look."
    assert message["reasoning_content"] == "Hm, well."
    assert [call["function"] for call in message["tool_calls"]] == [
        {"name": "f", "arguments": '{"a": 1}'},
        {"name": "g", "arguments": "{}"},
    ]
    assert json.loads(json.dumps(message)) == message
    model.explain_prompt([*ASK, message, {"role": "tool", "content": "3"}])


def test_without_tools_nothing_is_a_call_and_control_tokens_of_no_meaning_stay_hidden(say: Say) -> None:
    reply = say("a<tool_call>b<other>").chat(ASK)
    assert (reply.text, reply.tool_calls, reply.finish_reason) == ("a<tool_call>b", (), "stop")


def test_a_plain_reply_is_as_it_was_written(say: Say) -> None:
    reply = say(" Well,\n\n  hello.\n").chat(ASK, tools=TOOLS)
    assert "".join(reply) == " Well,\n\n  hello.\n"
    assert (reply.reasoning, reply.tool_calls) == ("", ())
    assert "reasoning_content" not in reply.message
    assert "tool_calls" not in reply.message


def test_reasoning_that_the_template_opens(say: Say) -> None:
    opening = OPENING + "<think>\n"
    model = say("so</think>Yes.", template=TEMPLATE.replace(OPENING, opening), opening=opening)
    reply = model.chat(ASK, tools=TOOLS)
    assert (reply.reasoning, reply.text, reply.stopped_thinking) == ("so", "Yes.", True)


def test_reasoning_without_an_end_is_no_answer_and_says_so(say: Say) -> None:
    reply = say("<think>I wonder", end=False).chat(ASK, tools=TOOLS, max_tokens=12)
    assert (reply.text, reply.finish_reason, reply.stopped_thinking) == ("", "length", False)
    assert reply.reasoning.startswith("I won")


def test_a_reply_that_ends_in_its_reasoning_is_warned_of(say: Say, caplog: pytest.LogCaptureFixture) -> None:
    reply = say("<think>That is all.").chat(ASK)
    assert (reply.text, reply.finish_reason, reply.stopped_thinking) == ("", "stop", False)
    assert "within its reasoning" in caplog.text


def test_raw_replies_are_not_taken_apart(say: Say) -> None:
    reply = say(TWO).chat(ASK, tools=TOOLS, reply_format="raw")
    assert (reply.text, reply.reasoning, reply.tool_calls) == (TWO, "", ())


def test_a_format_can_be_named(say: Say) -> None:
    reply = say('[TOOL_CALLS][{"name": "f", "arguments": {"a": 2}}]').chat(ASK, tools=TOOLS, reply_format="mistral")
    assert reply.tool_calls[0].arguments == {"a": 2}
    with pytest.raises(edgellm.ArgumentError, match="reply_format"):
        say("x").chat(ASK, reply_format="mistrall")


def test_a_call_cut_off_says_so(say: Say) -> None:
    reply = say(TWO).chat(ASK, tools=TOOLS, max_tokens=len("<think>Hm, well.</think> I look.") + 30)
    (call,) = reply.tool_calls
    assert (call.name, call.complete, call.arguments) == ("f", False, {})
    assert reply.finish_reason == "length"


def test_stops_and_cancelling_are_those_of_any_generation(say: Say) -> None:
    model = say("abc def")
    reply = model.chat(ASK, tools=TOOLS, stop="d")
    assert (reply.text, reply.finish_reason) == ("abc ", "stop")
    reply = model.chat(ASK, tools=TOOLS)
    reply.cancel()
    assert reply.text in ("abc def", "abc de"[: len(reply.text)])


def test_an_error_is_raised_by_everything_that_waits(say: Say) -> None:
    model = say("abc")

    def fail(batch: object) -> None:
        raise edgellm.BackendError("broken")

    model._engine._executable.fail = fail  # type: ignore[attr-defined]
    reply = model.chat(ASK, tools=TOOLS)
    for read in (lambda: reply.text, lambda: reply.tool_calls, lambda: list(reply.events()), lambda: next(reply)):
        with pytest.raises(edgellm.EdgeLLMError, match="broken"):
            read()
    assert reply.finish_reason is None
