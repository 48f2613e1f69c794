"""Replies in the formats of real models, whole and in pieces."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgellm.chat.events import ContentDelta, Event, ReasoningDelta, ToolCallDelta, ToolCallStart
from edgellm.chat.formats import CALLS
from edgellm.chat.parser import ReplyParser, lead_of
from edgellm.chat.recognise import recognise
from edgellm.errors import ArgumentError
from tests.support.replies import SAMPLES, SCHEMAS, Result


def read(format: str, pieces: Iterable[str], lead: str = "", tools: bool = True) -> tuple[ReplyParser, list[Event]]:
    ids = count()
    parser = ReplyParser(
        recognise("<think>", format), schemas=SCHEMAS if tools else None, lead=lead, make_id=lambda: f"id{next(ids)}"
    )
    events = [event for piece in pieces for event in parser.feed(piece)]
    return parser, events + parser.finish()


def joined(events: Iterable[Event]) -> list[Any]:
    """Events with neighbours of a kind put together."""
    found: list[Any] = []
    for event in events:
        match event, found[-1:]:
            case (ReasoningDelta(text), [("reasoning", before)]) | (ContentDelta(text), [("content", before)]):
                found[-1] = (found[-1][0], before + text)
            case ToolCallDelta(index, text), [("arguments", number, before)] if number == index:
                found[-1] = ("arguments", index, before + text)
            case ReasoningDelta(text), _:
                found.append(("reasoning", text))
            case ContentDelta(text), _:
                found.append(("content", text))
            case ToolCallStart(index, id, name), _:
                found.append(("call", index, id, name))
            case ToolCallDelta(index, text), _:
                found.append(("arguments", index, text))
    return found


def result(parser: ReplyParser) -> Result:
    return parser.reasoning, parser.content, [(call.name, call.arguments, call.problem) for call in parser.calls]


@pytest.mark.parametrize("name", SAMPLES)
def test_a_reply_is_split_into_its_parts(name):
    format, text, expected = SAMPLES[name]
    parser, events = read(format, [text])
    assert result(parser) == expected
    assert "".join(e.text for e in events if isinstance(e, ContentDelta)) == parser.content
    assert "".join(e.text for e in events if isinstance(e, ReasoningDelta)) == parser.reasoning


@pytest.mark.parametrize("name", SAMPLES)
def test_character_by_character_it_is_the_same(name):
    format, text, expected = SAMPLES[name]
    parser, events = read(format, text)
    assert result(parser) == expected
    assert joined(events) == joined(read(format, [text])[1])


@pytest.mark.parametrize("name", SAMPLES)
def test_a_call_begins_once_and_its_fragments_make_json(name):
    format, text, _ = SAMPLES[name]
    parser, events = read(format, text)
    starts = [event for event in events if isinstance(event, ToolCallStart)]
    assert [start.index for start in starts] == list(range(len(parser.calls)))
    assert [(start.id, start.name) for start in starts] == [(call.id, call.name) for call in parser.calls]
    for index, call in enumerate(parser.calls):
        pieces = [event.arguments for event in events if isinstance(event, ToolCallDelta) and event.index == index]
        assert "".join(pieces) == call.json
        if call.problem is None:
            assert json.loads(call.json) == call.arguments


@pytest.mark.parametrize("name", SAMPLES)
def test_without_tools_calls_are_text(name):
    format, text, (reasoning, _, _) = SAMPLES[name]
    parser, _ = read(format, text, tools=False)
    assert parser.calls == ()
    assert parser.reasoning == reasoning


def test_ids_of_the_model_are_kept_and_others_made():
    parser, _ = read("mistral", [SAMPLES["mistral, with ids"][1]])
    assert [call.id for call in parser.calls] == ["abcdefghi", "id0"]
    parser, _ = read("solar", [SAMPLES["solar"][1]])
    assert [call.id for call in parser.calls] == ["abc"]
    call = ReplyParser(recognise("", "hermes"), schemas={})
    call.feed('<tool_call>{"name": "g"}</tool_call>')
    assert len(call.calls[0].id) == 9
    assert call.calls[0].id.isalnum()


def test_arguments_arrive_while_they_are_written():
    parser = ReplyParser(recognise("", "hermes"), schemas={})
    events = parser.feed('<tool_call>{"name": "f", "arguments": {"s": "abc')
    assert isinstance(events[0], ToolCallStart)
    assert "".join(e.arguments for e in events[1:] if isinstance(e, ToolCallDelta)) == '{"s": "abc'
    coder = ReplyParser(recognise("", "qwen-coder"), schemas=SCHEMAS)
    events = coder.feed("<function=f><parameter=s>\none\ntwo")
    assert "".join(e.arguments for e in events[1:] if isinstance(e, ToolCallDelta)) == '{"s": "one\\ntwo'


def test_text_is_held_back_only_while_it_may_be_a_mark():
    parser = ReplyParser(recognise("<think>", "hermes"), schemas={})
    assert parser.feed("a <tool") == [ContentDelta("a")]
    assert parser.feed("box>") == [ContentDelta(" <toolbox>")]


# Reasoning


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>x</think>y", ("x", "y")),
        ("\n<think>\nx\n</think>\n\ny\n", ("x", "y\n")),
        ("<think></think>y", ("", "y")),
        ("<think>x", ("x", "")),
        ("<think>a</think><think>b</think>c", ("a\n\nb", "c")),
        ("y <think>x</think> z", ("x", "y\n\nz")),
        ("y</think>z", ("", "y</think>z")),
        ("<think>x</thinks></think>y", ("x</thinks>", "y")),
    ],
)
def test_reasoning_and_answer(text, expected):
    for pieces in ([text], text):
        parser, _ = read("hermes", pieces)
        assert (parser.reasoning, parser.content) == expected
    assert parser.thinking == (text == "<think>x")


def test_a_template_that_says_nothing_of_reasoning_has_it_at_the_start_only():
    for text, expected in {
        "<think>x</think>y": ("x", "y"),
        "The tag <think> is </think>": ("", "The tag <think> is </think>"),
    }.items():
        parser = ReplyParser(recognise("no word of it"))
        parser.feed(text)
        parser.finish()
        assert (parser.reasoning, parser.content) == expected


@pytest.mark.parametrize(
    ("source", "prompt", "lead"),
    [
        ("<think>", "<|user|>x<|assistant|><think>\n", "<think>\n"),
        ("<think>", "<|user|>x<|assistant|><think>\n\n</think>\n\n", ""),
        ("<think>", "<|user|><think><|assistant|>", ""),
        ("[THINK]", "x[/INST][THINK]", "[THINK]"),
        (">>>", "x>>>", ">>>"),
        ("<|channel|>", "<|start|>user<|message|>x<|end|><|start|>assistant", ""),
        ("<|channel|>", "…<|start|>assistant<|channel|>final<|message|>", "<|channel|>final<|message|>"),
        ("<|channel|>", "no harmony", ""),
    ],
)
def test_what_the_prompt_has_of_the_reply(source, prompt, lead):
    assert lead_of(prompt, recognise(source), None) == lead


def test_reasoning_opened_by_the_template():
    parser, events = read("hermes", "so\n</think>\n\nYes", lead="<think>\n")
    assert joined(events) == [("reasoning", "so"), ("content", "Yes")]
    parser, _ = read("functionary-v3.2", "g\n{}", lead=">>>")
    assert result(parser) == ("", "", [("g", {}, None)])


@pytest.mark.parametrize(
    ("lead", "text", "expected"),
    [
        ("Hi John, ", "how are you? ", ("", "how are you? ")),
        ("<think>\nOkay, ", "so</think>Yes", ("so", "Yes")),
        ("<think>x</think>\n\nHi", " John", ("", " John")),
        ("{", '"a": 1}', ("", '"a": 1}')),
    ],
)
def test_a_continued_reply_has_only_what_is_new(lead, text, expected):
    for pieces in ([text], text):
        parser, _ = read("hermes", pieces, lead=lead)
        assert (parser.reasoning, parser.content) == expected


# Properties

MARKS = re.findall(
    r"\S+",
    "<think> </think> <tool_call> </tool_call> [TOOL_CALLS] <function= > { } [ ] f( ) ' : , ; <|python_tag|> "
    "<parameter=s> </parameter> </function> <|channel|> final <|message|> <|end|> <|start|> <|tool_call> call:f "
    "<tool_call|> <arg_key> </arg_key> <arg_value> </arg_value> <<<",
)
PARTS = st.one_of(
    st.sampled_from([text for _, text, _ in SAMPLES.values()]),
    st.sampled_from([*MARKS, "\n", " ", '"', "\\", '"name": "f"', '"arguments":']),
    st.text(max_size=5),
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(CALLS)), st.lists(PARTS, max_size=6), st.data())
def test_no_reply_raises_and_no_cut_matters(format, parts, data):
    text = "".join(parts)[:600]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    whole, at_once = read(format, [text])
    cut, in_pieces = read(format, pieces)
    assert joined(in_pieces) == joined(at_once)
    assert result(cut) == result(whole)
    assert [call.json for call in cut.calls] == [call.json for call in whole.calls]


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(sorted(set(CALLS) - {"harmony"})), st.text(st.characters(exclude_characters="<[{>A"), max_size=60)
)
def test_text_without_any_mark_stays_as_it_is(format, text):
    if "functools" not in text:
        assert result(read(format, text)[0]) == ("", text, [])


@pytest.mark.parametrize(
    "text",
    [
        *("<tool_call>" * 3000, "[" * 20_000, '{"a":' * 5000, "<tool_call>{" * 2000, "<function=f>" * 2000),
        "<|tool_call>call:f{a:" + "[" * 5000 + "<tool_call|>",
        "<|tool_call>call:f{a:" + "{a:" * 5000 + "<tool_call|>",
        "<|tool_call_start|>[f(a=" + "[" * 5000 + "]" * 5000 + ")]<|tool_call_end|>",
        '<tool_call>{"name": "f", "arguments": {"a":' + "[" * 5000 + "]" * 5000 + "}}</tool_call>",
        "<function=f><parameter=o>" + "[" * 5000 + "]" * 5000 + "</parameter></function>",
    ],
)
@pytest.mark.parametrize("format", ["hermes", "llama", "qwen-coder", "lfm2", "gemma"])
def test_endless_openings_end(format, text):
    parser, _ = read(format, [text[i : i + 7] for i in range(0, len(text), 7)])
    assert parser.calls == () or parser.calls[0].name


def test_an_unknown_format_is_refused_by_name():
    with pytest.raises(ArgumentError, match=r"reply_format must be one of .*hermes.*, not 'herms'"):
        recognise("", "herms")
