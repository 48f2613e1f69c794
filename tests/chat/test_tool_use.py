"""Tools in a chat: what is offered, what is demanded, what is run."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

import edgellm
from tests.support.talk import ASK, TEMPLATE, Say

LISTING = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}" + TEMPLATE
WITH_CALLS = LISTING.replace(
    "{{ m['content'] }}",
    "{{ m['content'] }}{% for c in m.tool_calls %}<tool_call>\n{{ c.function | tojson }}\n</tool_call>{% endfor %}",
)


def call(name: str, **arguments: Any) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


def fail() -> str:
    raise LookupError("no such thing")


SCHEMA = {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}


def prompt_of(model: edgellm.Model, **arguments: Any) -> str:
    return "".join(piece.text for piece in model.explain_prompt(ASK, **arguments).pieces)


def test_functions_and_schemas_are_listed(say: Say) -> None:
    model = say("x", template=LISTING)
    assert '"name": "add", "description": "Add two numbers."' in prompt_of(model, tools=[add])
    assert '"properties": {"a": {"type": "integer"}}' in prompt_of(model, tools=[SCHEMA])
    assert "add" not in prompt_of(model, tools=[])
    assert "add" not in prompt_of(model, tools=[add], tool_choice="none")


@pytest.mark.parametrize("choice", [None, "auto", "required", "add", {"type": "function", "function": {"name": "add"}}])
def test_a_call_under_every_choice_streamed_and_not(say: Say, choice: Any) -> None:
    model = say(call("add", a=2))
    for _ in range(2):
        reply = model.chat(ASK, tools=[add], tool_choice=choice)
        assert [(c.name, c.arguments) for c in reply.tool_calls] == [("add", {"a": 2})]
        assert reply.finish_reason == "tool_calls"
    starts = [
        e for e in model.chat(ASK, tools=[add], tool_choice=choice).events() if isinstance(e, edgellm.ToolCallStart)
    ]
    assert len(starts) == 1


def test_with_none_a_call_is_text(say: Say) -> None:
    reply = say(call("add", a=2)).chat(ASK, tools=[add], tool_choice="none")
    assert (reply.tool_calls, reply.text, reply.finish_reason) == ((), call("add", a=2), "stop")


@pytest.mark.parametrize("choice", ["required", "add"])
@pytest.mark.parametrize("arguments", [{}, {"enable_thinking": False}])
def test_a_model_that_would_rather_talk_calls_if_it_must(say: Say, choice: str, arguments: dict[str, Any]) -> None:
    model = say("No.", template=TEMPLATE.replace("<think>", "") if not arguments else TEMPLATE)
    reply = model.chat(ASK, tools=[add], tool_choice=choice, max_tokens=400, seed=1, **arguments)
    assert reply.text == ""
    for made in reply.tool_calls:
        assert made.name == "add"
        if made.complete:
            assert type(made.arguments["a"]) is int
    assert reply.tool_calls


@pytest.mark.parametrize("wrong", [call("sub", a=1), call("add", a="1"), call("add"), call("add", a=1, c=1)])
def test_a_call_that_has_begun_is_held_to_the_tools(say: Say, wrong: str) -> None:
    reply = say(wrong).chat(ASK, tools=[add], max_tokens=600, seed=3)
    for made in reply.tool_calls:
        assert made.name == "add"
        if made.complete:
            assert type(made.arguments["a"]) is int
            assert made.arguments.keys() <= {"a", "b"}
    assert reply.raw.startswith(wrong[:12])
    assert not reply.raw.startswith(wrong)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"tools": [add], "tool_choice": "sub"}, "tool_choice must be .*'add', not 'sub'"),
        ({"tools": [], "tool_choice": "required"}, "no tools"),
        ({"tool_choice": "add"}, "tool_choice"),
        ({"tools": "add"}, "tools"),
        ({"tools": [add], "json": True}, "schema or grammar"),
        ({"tools": [add], "tool_choice": "required", "reply_format": "muse"}, "cannot be enforced"),
        ({"run_tools": True}, "no tools"),
        ({"tools": [SCHEMA], "run_tools": True}, "'add' is not"),
        ({"tools": [add], "run_tools": True, "max_tool_rounds": 0}, "max_tool_rounds"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(say: Say, arguments: dict[str, Any], words: str) -> None:
    model = say("Hi")
    with pytest.raises(edgellm.ArgumentError, match=words):
        model.chat(ASK, **arguments)
    assert model.chat(ASK, tools=[add]).text == "Hi"


# Running them


def test_a_tool_is_called_and_the_model_goes_on(say: Say) -> None:
    model = say("Let me see." + call("add", a=2, b=3), "It is 5.", template=WITH_CALLS)
    run = model.chat(ASK, tools=[add], run_tools=True)
    assert isinstance(run, edgellm.Reply)
    assert run.text == "Let me see.\n\nIt is 5."
    asked, result, answer = run.messages
    assert asked["content"] == "Let me see."
    assert asked["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 2, "b": 3}'}
    assert result == {"role": "tool", "tool_call_id": asked["tool_calls"][0]["id"], "name": "add", "content": "5"}
    assert answer == {"role": "assistant", "content": "It is 5."}
    assert (run.finish_reason, run.tool_calls, run.done) == ("stop", (), True)
    first = model.chat(ASK, tools=[add]).usage
    assert run.usage.prompt_tokens > 2 * first.prompt_tokens


def test_a_demanded_call_is_demanded_once(say: Say) -> None:
    run = say(call("add", a=2), "It is 3.").chat(ASK, tools=[add], tool_choice="add", run_tools=True)
    assert run.text == "It is 3."
    assert len(run.messages) == 3


def test_a_message_is_continued_once(say: Say) -> None:
    begun = [*ASK, {"role": "assistant", "content": "Well,"}]
    model = say(call("add", a=2), "It is 3.", opening="Well,")
    run = model.chat(begun, tools=[add], run_tools=True, continue_final_message=True, max_tokens=300, seed=1)
    assert [message["role"] for message in run.messages[:2]] == ["assistant", "tool"]
    assert run.messages[1]["content"] == "3"


def test_chunks_and_events_go_through_all_rounds(say: Say) -> None:
    model = say("Well." + call("add", a=2), call("add", a=3), "Done.")
    run = model.chat(ASK, tools=[add], run_tools=True)
    assert "".join(run) == run.text == "Well.\n\nDone."
    kinds = [type(event).__name__ for event in run.events()]
    assert kinds.count("ToolCallStart") == kinds.count("ToolResult") == 2
    assert [event.text for event in run.events() if isinstance(event, edgellm.ToolResult)] == ["3", "4"]
    assert kinds.index("ToolResult") > kinds.index("ToolCallDelta")


def test_asyncio(say: Say) -> None:
    model = say(call("add", a=2), "Done.")
    threads = []

    def noted(a: int) -> int:
        threads.append(threading.current_thread())
        return a

    noted.__name__ = "add"

    async def read() -> str:
        return "".join([chunk async for chunk in model.chat(ASK, tools=[noted], run_tools=True)])

    assert asyncio.run(read()) == "Done."
    assert threads != []
    assert threads[0] is not threading.main_thread()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (call("fail"), "error: LookupError: no such thing"),
        (call("add", a="x"), "error: ValueError"),
        (call("sub", a=1), "error: there is no tool 'sub'; there are add, fail"),
        ('<tool_call>\n{"name": "add", "arguments": [1]}\n</tool_call>', "error: the arguments are not an object"),
    ],
)
def test_errors_of_tools_are_results(say: Say, monkeypatch: pytest.MonkeyPatch, said: str, words: str) -> None:
    # Without a grammar, as for the formats that have none.
    monkeypatch.setattr("edgellm.chatting.tool_grammar", lambda *_: None)
    run = say(said, "Sorry.").chat(ASK, tools=[add, fail], run_tools=True)
    assert run.text == "Sorry."
    assert run.messages[1]["content"].startswith(words)


def test_rounds_are_limited_and_what_is_left_is_told(say: Say) -> None:
    counted = []

    def count(n: int) -> int:
        """Count."""
        counted.append(n)
        return n

    run = say(call("count", n=1)).chat(ASK, tools=[count], run_tools=True, max_tool_rounds=3)
    assert run.text == ""
    assert counted == [1, 1, 1]
    assert run.finish_reason == "tool_calls"
    assert [made.name for made in run.tool_calls] == ["count"]
    assert [message["role"] for message in run.messages] == ["assistant", "tool"] * 3 + ["assistant"]


def test_nothing_runs_before_someone_waits_or_after_a_cancel(say: Say) -> None:
    ran: list[int] = []

    def stop(n: int) -> str:
        ran.append(n)
        run.cancel()
        return "x"

    run: Any = say(call("stop", n=1) + call("stop", n=2), "Never said.").chat(ASK, tools=[stop], run_tools=True)
    assert (ran, run.finish_reason, run.done) == ([], None, False)
    assert run.text == ""
    assert ran == [1]
    assert (run.finish_reason, run.done) == ("cancelled", True)


def test_several_calls_of_a_round_run_in_order(say: Say) -> None:
    run = say(call("add", a=1) + "\n" + call("add", a=2), "Ok.").chat(ASK, tools=[add], run_tools=True)
    assert run.text == "Ok."
    assert [message["content"] for message in run.messages] == [None, "2", "3", "Ok."]
    ids = [made["id"] for made in run.messages[0]["tool_calls"]]
    assert ids == [message["tool_call_id"] for message in run.messages[1:3]]
    assert len(set(ids)) == 2


def test_an_error_between_rounds_comes_to_whoever_waits(say: Say) -> None:
    def long(n: int) -> str:
        """Much."""
        return "x" * 9000

    run = say(call("long", n=1), "Never said.").chat(ASK, tools=[long], run_tools=True)
    with pytest.raises(edgellm.ContextOverflowError):
        _ = run.text
    assert list(run.events())
