"""What the arguments of a chat do to its prompt."""

from __future__ import annotations

from typing import Any

import pytest

from edgellm.chat import ChatOptions
from edgellm.errors import ArgumentError, TemplateError
from edgellm.prompts import Prompts
from tests.support.tiny import CHATML, vocabulary

ASK = {"role": "user", "content": "Hi"}
TOOL = {"type": "function", "function": {"name": "f", "description": "Do </s> it.", "parameters": {"type": "object"}}}


def prompts(template: str = CHATML, **more: str) -> Prompts:
    named = {f"tokenizer.chat_template.{name}": source for name, source in more.items()}
    return Prompts({**vocabulary(add_bos_token=False), "tokenizer.chat_template": template, **named}, "m.gguf")


def text(made: Prompts, messages: list[Any], **options: Any) -> str:
    return made.tokenizer.decode(made.encode_chat(messages, ChatOptions(**options)), skip_special=False)


@pytest.mark.parametrize("said", ["Hi John,", "Hi John, ", " two\nlines \n"])
@pytest.mark.parametrize("add", [None, False])
def test_a_reply_is_continued_exactly_where_it_stopped(said, add):
    for content in (said, [{"type": "text", "text": said}]):
        messages = [ASK, {"role": "assistant", "content": content}]
        found = text(prompts(), messages, continue_final_message=True, add_generation_prompt=add)
        assert found == "<|turn|>user\nHi<|im_end|><|turn|>assistant\n" + said


def test_continuing_and_beginning_exclude_each_other():
    messages = [ASK, {"role": "assistant", "content": "Hi John,"}]
    with pytest.raises(ArgumentError, match="continue_final_message excludes add_generation_prompt"):
        text(prompts(), messages, continue_final_message=True, add_generation_prompt=True)


def test_a_message_continued_may_spell_control_tokens_up_to_its_end():
    made = prompts()
    ids = made.encode_chat([ASK, {"role": "assistant", "content": "a</s>"}], ChatOptions(continue_final_message=True))
    spelled = made.tokenizer.encode("a</s>", add_special=False)
    assert ids[-len(spelled) :] == spelled
    assert made.tokenizer.eos_id not in ids


def test_without_a_generation_prompt_nothing_follows():
    assert text(prompts(), [ASK], add_generation_prompt=False) == "<|turn|>user\nHi<|im_end|>"


@pytest.mark.parametrize("ascii", [False, True])
def test_tools_and_documents_spell_no_control_tokens(ascii):
    listed = "{% for k, v in documents[0].items() %}{{ k }}:{{ v }}{% endfor %}"
    made = prompts("<s>{{ tools | tojson(ensure_ascii=ASCII) }}".replace("ASCII", str(ascii)) + listed + "</s>")
    ids = made.encode_chat([ASK], ChatOptions(tools=[TOOL], documents=[{"</s>": "x<s>y"}]))
    assert [i for i, token in enumerate(ids) if made.tokenizer.is_control(token)] == [0, len(ids) - 1]
    found = made.tokenizer.decode(ids, skip_special=False)
    assert '"description": "Do </s> it."' in found
    assert found.endswith("</s>:x<s>y</s>")
    trusted = made.encode_chat([ASK], ChatOptions(tools=[TOOL], documents=[{"a": ""}], parse_special=True))
    assert sum(map(made.tokenizer.is_control, trusted)) == 3


def test_a_file_may_have_templates_for_tools_and_documents():
    made = prompts("plain", tool_use="tools {{ tools | length }}", rag="documents")
    assert text(made, [ASK]) == "plain"
    assert text(made, [ASK], tools=[]) == "plain"
    assert text(made, [ASK], tools=[TOOL]) == "tools 1"
    assert text(made, [ASK], documents=[{"text": "x"}]) == "documents"
    assert text(prompts("plain {{ tools | length }}"), [ASK], tools=[TOOL]) == "plain 1"


def test_a_template_of_ones_own_takes_the_place_of_the_files():
    made = prompts("plain", tool_use="tools")
    for _ in range(2):
        own = "{{ eos_token }}{{ messages[0].content }}{{ tools[0].function.name if tools }}"
        assert text(made, [ASK], chat_template=own, tools=[TOOL]) == "</s>Hif"
    assert text(made, [ASK]) == "plain"
    without = Prompts(vocabulary(add_bos_token=False), "m.gguf")
    assert text(without, [ASK], chat_template="own") == "own"
    with pytest.raises(TemplateError, match=r"^chat_template, line 1"):
        text(made, [ASK], chat_template="{% if %}")
    with pytest.raises(TemplateError, match="chat_template="):
        text(without, [ASK])


def test_errors_name_the_template_they_come_from():
    with pytest.raises(TemplateError, match=r"^m\.gguf \(tool_use\), line 1, column \d+: "):
        text(prompts("plain", tool_use="{% if %}"), [ASK], tools=[TOOL])


THINKING = "{{ enable_thinking }}/{{ thinking }}/{{ thinking_budget }}/{{ reasoning_effort }}/{{ mood }}"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "////"),
        ({"enable_thinking": True}, "True/True///"),
        ({"enable_thinking": False}, "False/False/0//"),
        ({"reasoning_effort": "low"}, "///low/"),
        ({"template_args": {"mood": "good", "thinking": 3}, "enable_thinking": False}, "False/3/0//good"),
    ],
)
def test_reasoning_is_switched_by_whatever_the_template_calls_it(options, expected):
    assert text(prompts(THINKING), [ASK], **options) == expected


def test_a_variable_the_template_does_not_read_is_left_undefined():
    source = "{% for x in [] %}{% endfor %}{{ enable_thinking }}{% set thinking = 1 %}{{ thinking }}"
    assert text(prompts(source), [ASK], enable_thinking=True) == "True1"


@pytest.mark.parametrize(
    "wrong",
    [
        {"tools": "f"},
        {"tools": {"name": "f"}},
        {"tools": [1]},
        {"documents": ["x"]},
        {"enable_thinking": "yes"},
        {"continue_final_message": 1},
        {"add_generation_prompt": "x"},
        {"reasoning_effort": 3},
        {"chat_template": 3},
        {"template_args": [("a", 1)]},
        {"template_args": {"tools": []}},
        {"template_args": {"messages": []}},
        {"template_args": {3: 1}},
    ],
)
def test_wrong_arguments_are_named(wrong):
    (name,) = wrong
    with pytest.raises(ArgumentError, match=name):
        ChatOptions(**wrong)


def test_values_no_template_can_take_are_refused():
    with pytest.raises(TemplateError, match="mood holds a object"):
        text(prompts(), [ASK], template_args={"mood": object()})


def test_values_nested_endlessly_are_a_typed_error():
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    for given in ({"documents": [{"a": deep}]}, {"template_args": {"a": deep}}):
        with pytest.raises(TemplateError, match="nested deeper"):
            text(prompts(), [{"role": "user", "content": "</s>"}], **given)
