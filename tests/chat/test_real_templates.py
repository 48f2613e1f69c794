"""The templates of real models render as they do in a plain Jinja environment with the ecosystem's settings."""

import copy
import json
import os
from collections.abc import Callable
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jinja2 import Template
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from edgellm.chat import ChatTemplate
from edgellm.errors import TemplateError

FOLDER = Path(os.environ.get("EDGELLM_VECTORS") or Path(__file__).parents[3] / "shared") / "templates"
TEMPLATES = sorted(FOLDER.glob("*.jinja"))
NOW = datetime(2026, 1, 2, 3, 4, 5)

USER = {"role": "user", "content": "Hi <you> & 'me'  \n{{ x }}"}
CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "f", "arguments": {"a": 3}}}
TOOL = {
    "type": "function",
    "function": {
        "name": "f",
        "description": "Do “f”",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    },
}
SYSTEM = {"role": "system", "content": "Be\nbrief."}
ASKED = {"role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "abcdefghi", "name": "f", "content": "42"}
SECOND = {"id": "abcdefghj", "type": "function", "function": {"name": "g", "arguments": {"b": ["x\n<y>", None, True]}}}
SECOND_RESULT = {"role": "tool", "tool_call_id": "abcdefghj", "name": "g", "content": '{"ok": "é"}'}
OTHER_TOOL = {
    "type": "function",
    "function": {
        "name": "g",
        "description": "Do <that>",
        "parameters": {
            "type": "object",
            "properties": {"b": {"type": "array", "items": {"type": "string"}}, "c": {"enum": ["x", "y"]}},
        },
    },
}
REASONING = ("reasoning_content", "reasoning", "thinking")
"""What templates call it."""
THOUGHT = {"role": "assistant", "content": "So.", **dict.fromkeys(REASONING, "I think\nso.")}
FOUR = [SYSTEM, USER, {"role": "assistant", "content": "Hello “there”"}, {"role": "user", "content": " ok "}]

CONVERSATIONS: dict[str, tuple[list[dict[str, object]], dict[str, object]]] = {
    "one turn": ([USER], {}),
    "four turns": (FOUR, {}),
    "not to be answered": (FOUR[:3], {"add_generation_prompt": False}),
    "tools to use": ([SYSTEM, USER], {"tools": [TOOL, OTHER_TOOL]}),
    "tools used": ([USER, ASKED, RESULT], {"tools": [TOOL]}),
    "two calls": (
        [SYSTEM, USER, {**ASKED, "tool_calls": [CALL, SECOND]}, RESULT, SECOND_RESULT, THOUGHT, USER],
        {"tools": [TOOL, OTHER_TOOL]},
    ),
    "a call with words and thoughts": (
        [USER, {**ASKED, "content": "Let me see.", **dict.fromkeys(REASONING, "Hm.")}, RESULT],
        {"tools": [TOOL]},
    ),
    "thinking": ([USER, THOUGHT, USER], {"enable_thinking": True, "thinking": True, "reasoning_effort": "high"}),
    "not thinking": ([USER, THOUGHT, USER], {"enable_thinking": False, "thinking": False}),
    "documents": ([USER], {"documents": [{"title": "T", "text": "Some <text>", "doc_id": 1}]}),
    "system alone": ([SYSTEM], {}),
    "two in a row": ([USER, USER], {}),
}

TEXT_ARGUMENTS = {"meetkai-functionary-medium-v3.2"}
"""Templates that concatenate arguments."""
NO_SYSTEM = {"google-gemma-2-2b-it"}
"""Templates that refuse a system message."""
NO_LISTING = {
    *("HuggingFaceTB-SmolLM3-3B", "google-gemma-2-2b-it", "llama-cpp-rwkv-world", "microsoft-Phi-3.5-mini-instruct"),
    *("deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B"),
    "deepseek-ai-DeepSeek-V3.1",
}
"""Templates that do not list tools."""
NO_CALLS = {"LFM2-8B-A1B", "LFM2.5-Instruct", "ibm-granite-granite-3.3-2B-Instruct"}
"""Templates that list tools but do not write earlier calls."""


class PlainGeneration(Extension):
    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


class OwnRefusal(Exception):
    pass


@cache
def compiled(source: str) -> Template:
    def refuse(message):
        raise OwnRefusal(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    extensions = [loopcontrols, PlainGeneration]
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
    environment.filters["tojson"] = tojson
    environment.globals.update(raise_exception=refuse, strftime_now=NOW.strftime)
    return environment.from_string(source)


@cache
def ours(path: Path) -> ChatTemplate:
    return ChatTemplate(path.read_text(encoding="utf-8"), bos_token="<s>", eos_token="</s>")


def written_for(name: str, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages as a template needs them that cannot take all there is."""
    messages = copy.deepcopy(messages)
    for message in messages if name in TEXT_ARGUMENTS else ():
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"], ensure_ascii=False)
    if name in NO_SYSTEM and messages[0]["role"] == "system":
        system, *messages = messages
        messages = messages or [{"role": "user"}]
        messages[0]["content"] = "\n\n".join(filter(None, [system["content"], messages[0].get("content")]))
    return messages


def outcome(work: Callable[[], str]) -> str | Exception:
    try:
        return work()
    except Exception as error:
        return error


def test_the_templates_are_there():
    if TEMPLATES:
        assert len(TEMPLATES) > 50
    elif os.environ.get("CI"):
        pytest.fail(f"no templates in {FOLDER}; set EDGELLM_VECTORS")
    else:
        pytest.skip(f"no templates in {FOLDER}; set EDGELLM_VECTORS")


def compare(path: Path, conversation: str, given: list[dict[str, Any]]) -> None:
    messages, variables = CONVERSATIONS[conversation]
    values = {"bos_token": "<s>", "eos_token": "</s>", "tools": None, "documents": None, "add_generation_prompt": True}
    reference = compiled(path.read_text(encoding="utf-8"))
    written = written_for(path.stem, messages)
    expected = outcome(lambda: reference.render(**{**values, **variables}, messages=written))
    actual = outcome(lambda: ours(path).render(given, clock=lambda: NOW, **variables))
    called = any(message.get("tool_calls") for message in messages)
    if variables.get("tools") and (path.stem in NO_LISTING or (called and path.stem in NO_CALLS)):
        assert not ours(path).lists_tools or path.stem in NO_CALLS
        assert isinstance(actual, str)
        assert '"name": "f"' in actual
        # This one writes calls only where the content is null.
        called = called and path.stem != "deepseek-ai-DeepSeek-R1-Distill-Llama-8B"
        assert not called or '"a": 3' in actual or "f(a=3)" in actual
        assert not called or "42" in actual
        return
    if isinstance(expected, OwnRefusal):
        assert isinstance(actual, TemplateError)
        assert str(actual) == str(expected)
    elif isinstance(expected, Exception):
        # Written for other variables than everyone passes: then it must fail here for the same reason.
        assert isinstance(actual, TemplateError)
        assert repr(actual.__cause__) == repr(expected)
    else:
        assert actual == expected


@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_same_text_as_plain_jinja(path, conversation):
    compare(path, conversation, CONVERSATIONS[conversation][0])


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_arguments_given_as_text_and_content_given_as_parts_change_nothing(path):
    messages = [copy.deepcopy(message) for message in CONVERSATIONS["two calls"][0]]
    for message in messages:
        message["content"] = [{"type": "text", "text": message["content"]}]
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
    compare(path, "two calls", messages)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_only_those_without_a_system_role_have_it_merged(path):
    assert ours(path).takes_system == (path.stem not in NO_SYSTEM)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_null_content_of_a_tool_call_never_shows_as_a_word(path):
    messages = [USER, {**ASKED, "content": None}, RESULT]
    result = outcome(lambda: ours(path).render(messages, tools=[TOOL], clock=lambda: NOW))
    if isinstance(result, Exception):
        assert "NoneType" not in str(result)
    else:
        assert "None" not in result
