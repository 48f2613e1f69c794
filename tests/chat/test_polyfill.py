"""Tools with templates that know nothing of them."""

from __future__ import annotations

import pytest

from edgellm.chat import ChatTemplate
from edgellm.chat.parser import ReplyParser
from edgellm.chat.polyfill import spell_calls
from edgellm.chat.recognise import recognise

PLAIN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
ALTERNATING = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) or m.role == 'system' %}"
    "{{ raise_exception('Alternate!') }}{% endif %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
)
TOOL = {"type": "function", "function": {"name": "f", "description": "Do “it”.", "parameters": {"type": "object"}}}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
TALK = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": None, "tool_calls": [CALL, {**CALL, "id": "2"}]},
    {"role": "tool", "tool_call_id": "1", "content": "42"},
    {"role": "tool", "tool_call_id": "2", "content": "43"},
]
CALLED = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


def test_tools_are_described_where_a_template_does_not():
    text = ChatTemplate(PLAIN).render([TALK[0]], tools=[TOOL])
    system, user = text.split("<user>")
    assert system.startswith("<system>You may call")
    assert '{"name": "f", "description": "Do “it”.", "parameters": {"type": "object"}}' in system
    assert '<tool_call>\n{"name": "NAME", "arguments": {}}\n</tool_call>' in system
    assert user == "Hi\n"
    own = ChatTemplate(PLAIN).render([{"role": "system", "content": "Be brief."}, TALK[0]], tools=[TOOL])
    assert own.startswith("<system>Be brief.\n\nYou may call")
    assert own.count("<system>") == 1


def test_without_tools_nothing_is_added():
    assert ChatTemplate(PLAIN).render([TALK[0]]) == ChatTemplate(PLAIN).render([TALK[0]], tools=[]) == "<user>Hi\n"


def test_a_template_that_lists_tools_is_left_alone():
    source = "{{ tools | tojson }}" + PLAIN
    assert ChatTemplate(source).render([TALK[0]], tools=[TOOL]).count("You may call") == 0


def test_calls_and_results_become_what_the_model_wrote_and_the_user_says():
    text = ChatTemplate(ALTERNATING).render(TALK, tools=[TOOL])
    user, _, results = text.removeprefix("<user>").partition("<assistant>")
    assert user.startswith("You may call")
    assert user.endswith("\n\nHi\n")
    calls, _, results = results.partition("<user>")
    assert calls == f"{CALLED}\n{CALLED}\n"
    assert results == "<tool_response>\n42\n</tool_response>\n<tool_response>\n43\n</tool_response>\n"


def test_roles_that_a_template_writes_stay():
    text = ChatTemplate(PLAIN).render(TALK, tools=[TOOL])
    assert text.endswith(f"<assistant>{CALLED}\n{CALLED}\n<tool>42\n<tool>43\n")


def test_words_before_calls_are_kept():
    talk = [TALK[0], {"role": "assistant", "content": "Well.", "tool_calls": [CALL]}]
    assert ChatTemplate(PLAIN).render(talk).endswith(f"<assistant>Well.\n{CALLED}\n")


def test_a_format_that_cannot_be_written_here_keeps_the_templates_own_error():
    source = ALTERNATING + "{# [TOOL_CALLS] #}"
    with pytest.raises(ValueError, match="Alternate!"):
        ChatTemplate(source).render(TALK, tools=[TOOL])


@pytest.mark.parametrize("style", ["hermes", "lfm2", "granite"])
def test_what_is_written_is_read_back(style):
    calls = [{"name": "f", "arguments": {"a": "é'\"\n", "b": [None, True]}}, {"name": "g", "arguments": {}}]
    parser = ReplyParser(recognise("", style), schemas={})
    parser.feed("Words " + spell_calls(calls, style))
    parser.finish()
    assert parser.content == "Words"
    assert [{"name": call.name, "arguments": call.arguments} for call in parser.calls] == calls
