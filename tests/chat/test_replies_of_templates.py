"""What the templates of real models write for earlier calls is read back as the same calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgellm.chat import ChatTemplate
from edgellm.chat.lint import lint
from edgellm.chat.parser import ReplyParser, lead_of
from edgellm.chat.recognise import recognise
from tests.chat.test_real_templates import TEMPLATES, ours

ANY = {"additionalProperties": {"type": "boolean"}}
PROPERTIES = {
    "count": {"type": "integer", "description": "d"},
    "words": {"type": "string", "description": "d"},
    "list": {"type": "array", "items": {"type": "string"}, "description": "d"},
    "more": {"type": "object", "properties": {"x": {"type": "boolean"}}, **ANY, "description": "d"},
}
SCHEMA = {"type": "object", "properties": PROPERTIES}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "d", "parameters": SCHEMA}}
    for name in ("one", "two")
]
ASK = {"role": "user", "content": "QUESTION?"}
ARGUMENTS: dict[str, Any] = {"count": 3, "words": "a “b”,\nc: {d}", "list": ["p", "q"], "more": {"x": True}}

WRITE_ONE_CALL = ("GigaChat", "meta-llama", "openai-gpt-oss")
UNREAD = {"MiniMax-M3"}
"""Nested tags with an unusual prefix."""


def call(name: str, arguments: dict[str, Any], number: int) -> dict[str, Any]:
    return {"id": f"abcdefgh{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


def reply_of(template: ChatTemplate, message: dict[str, Any]) -> tuple[str, str]:
    """What the prompt has before a reply, and what the template writes for it."""
    prompt = template.render([ASK], tools=TOOLS)
    whole = template.render([ASK, message], tools=TOOLS, add_generation_prompt=False)
    start = whole.rfind("QUESTION?")
    prompt = prompt[prompt.rfind("QUESTION?") :]
    whole = whole[start:]
    same = next((i for i, (a, b) in enumerate(zip(prompt, whole, strict=False)) if a != b), len(prompt))
    opened = whole.rfind("<", 0, same)
    if opened >= 0 and ">" not in whole[opened:same]:
        same = opened
    return prompt[:same], whole[same:]


def check(path: Path, message: dict[str, Any]) -> None:
    template = ours(path)
    format = recognise(template.source)
    prompt, reply = reply_of(template, message)
    # A template may open reasoning for a new reply and not write any for earlier ones.
    lead = lead_of(prompt, format, None)
    if format.name != "functionary-v3.2":
        closed = format.thinking.close in reply.partition(format.thinking.open)[0]
        lead = format.thinking.open if closed else ""
    parser = ReplyParser(format, schemas={"one": SCHEMA, "two": SCHEMA}, lead=lead)
    for char in reply:
        parser.feed(char)
    parser.finish()
    found = [(made.name, made.arguments, made.problem) for made in parser.calls]
    wanted = [(made["function"]["name"], made["function"]["arguments"], None) for made in message["tool_calls"]]
    assert found == wanted
    if format.name == "muse":  # reasoning is a message of its own, which is not looked for
        return
    assert ("THOUGHT" in reply) == ("THOUGHT" in parser.reasoning)
    assert "THOUGHT" not in parser.content
    if format.name != "harmony":  # there, words before a call are an analysis
        assert ("CONTENT" in reply) == ("CONTENT" in parser.content)


def writes_calls(path: Path) -> bool:
    return lint(ours(path)).calls is not None and path.stem not in UNREAD


WRITING = [path for path in TEMPLATES if writes_calls(path)]


def test_most_templates_write_calls() -> None:
    if TEMPLATES:
        assert len(WRITING) > 50


@pytest.mark.parametrize("path", WRITING, ids=lambda path: path.stem)
def test_a_call_is_read_back(path: Path) -> None:
    check(path, {"role": "assistant", "content": None, "tool_calls": [call("one", ARGUMENTS, 1)]})


@pytest.mark.parametrize("path", WRITING, ids=lambda path: path.stem)
def test_two_calls_words_and_thoughts_are_read_back(path: Path) -> None:
    calls = [call("one", ARGUMENTS, 1), call("two", {}, 2)]
    if path.stem == "deepseek-ai-DeepSeek-R1-Distill-Llama-8B":
        pytest.skip("it writes either words or calls")
    calls = calls[:1] if path.stem.startswith(WRITE_ONE_CALL) else calls
    message = {"role": "assistant", "content": "CONTENT", "tool_calls": calls}
    message["reasoning_content"] = "THOUGHT"
    check(path, message)
