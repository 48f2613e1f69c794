"""What a template is found to do."""

from __future__ import annotations

import dataclasses

import pytest

from edgellm.chat import ChatTemplate
from edgellm.chat.lint import Findings, lint

CALLS = "{% for c in m.tool_calls %}<call>{{ c.function.name }}{{ c.function.arguments | tojson }}</call>{% endfor %}"
FULL = (
    "{% if tools %}{% for t in tools %}{{ t | tojson }}{% endfor %}{% endif %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.reasoning_content or '' }}{{ m.content }}" + CALLS + "</>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% if enable_thinking %}<think>{% endif %}{{ mood }}{% endif %}"
)


def test_a_template_that_does_everything():
    assert lint(ChatTemplate(FULL)) == Findings(
        roles=("system", "user", "assistant", "tool"),
        system="own",
        lists_tools=True,
        calls="object",
        several_calls=True,
        results=True,
        switches=("enable_thinking",),
        keeps_reasoning=True,
        opening="<assistant>",
        continues=True,
        variables=("mood",),
    )


def test_a_template_that_does_little():
    source = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('No system.') }}{% endif %}"
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('Alternate!') }}{% endif %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    )
    found = lint(ChatTemplate(source))
    assert dataclasses.replace(found, notes=()) == Findings(
        roles=("user", "assistant"), system="merged", opening="", continues=True
    )
    assert any("no system role" in note for note in found.notes)
    assert sum("Alternate!" in note for note in found.notes) == 2


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{% for %}", "line 1, column"),
        ("{{ nobody.x }}", "'nobody' is undefined"),
        ("{{ raise_exception('Never.') }}", "Never."),
        ("{% for i in range(100000000) %}{{ i }}{% endfor %}", "too"),
    ],
)
def test_one_that_cannot_write_anything_says_why(source, words):
    found = lint(ChatTemplate(source))
    assert words in (found.error or "")
    assert dataclasses.replace(found, error=None) == Findings()


def test_one_that_needs_tools_is_tried_with_tools():
    found = lint(ChatTemplate("{{ tools[0].function.name }}" + FULL))
    assert found.error is None
    assert found.roles == ("system", "user", "assistant", "tool")
    assert "fails without tools" in found.notes[0]


def test_arguments_as_text_and_an_opening_that_begins_like_the_end():
    calls = "{% for c in m.tool_calls %}{{ '' + c.function.arguments }}{% endfor %}"
    source = "{% for m in messages %}{{ m.content }}" + calls + "{% endfor %}"
    found = lint(ChatTemplate(source + "{% if add_generation_prompt %}<|reply|>{% else %}<|end|>{% endif %}"))
    assert (found.calls, found.several_calls, found.opening) == ("text", True, "<|reply|>")
