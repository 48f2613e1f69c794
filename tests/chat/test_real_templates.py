"""The templates of real models render as they do in a plain Jinja environment with the ecosystem's settings."""

import json
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
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
CONVERSATIONS = {
    "one turn": ([USER], None),
    "four turns": (
        [
            {"role": "system", "content": "Be\nbrief."},
            USER,
            {"role": "assistant", "content": "Hello “there”"},
            {"role": "user", "content": " ok "},
        ],
        None,
    ),
    "tools": (
        [
            USER,
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "abcdefghi", "name": "f", "content": "42"},
        ],
        [TOOL],
    ),
}


class PlainGeneration(Extension):
    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


class OwnRefusal(Exception):
    pass


def plain_jinja(source: str, **variables: object) -> str:
    def refuse(message):
        raise OwnRefusal(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    extensions = [loopcontrols, PlainGeneration]
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
    environment.filters["tojson"] = tojson
    environment.globals.update(raise_exception=refuse, strftime_now=NOW.strftime)
    return environment.from_string(source).render(**variables)


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


@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_same_text_as_plain_jinja(path, conversation):
    source = path.read_text(encoding="utf-8")
    messages, tools = CONVERSATIONS[conversation]
    template = ChatTemplate(source, bos_token="<s>", eos_token="</s>")
    values = {"bos_token": "<s>", "eos_token": "</s>", "tools": tools, "documents": None}
    expected = outcome(lambda: plain_jinja(source, messages=messages, add_generation_prompt=True, **values))
    actual = outcome(lambda: template.render(messages, tools=tools, clock=lambda: NOW))
    if isinstance(expected, OwnRefusal):
        assert isinstance(actual, TemplateError)
        assert str(actual) == str(expected)
    elif isinstance(expected, Exception):
        # Written for other variables than everyone passes: then it must fail here for the same reason.
        assert isinstance(actual, TemplateError)
        assert repr(actual.__cause__) == repr(expected)
    else:
        assert actual == expected


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_null_content_of_a_tool_call_never_shows_as_a_word(path):
    messages, tools = CONVERSATIONS["tools"]
    messages = [messages[0], {**messages[1], "content": None}, messages[2]]
    template = ChatTemplate(path.read_text(encoding="utf-8"))
    result = outcome(lambda: template.render(messages, tools=tools, clock=lambda: NOW))
    if isinstance(result, Exception):
        assert "NoneType" not in str(result)
    else:
        assert "None" not in result
