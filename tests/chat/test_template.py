"""Rendering: the language templates are written in, and what is done to messages."""

import copy
from datetime import datetime

import pytest

from edgellm.chat import ChatTemplate
from edgellm.errors import ArgumentError, EdgeLLMError, TemplateError

CONVERSATION = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello"},
    {"role": "user", "content": "Bye"},
]
TURNS = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
ALTERNATING = (
    "{% for m in messages %}"
    "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}"
    "{% endif %}{{ m['content'] }}{% endfor %}"
)


def clock() -> datetime:
    return datetime(2024, 7, 26, 13, 5, 9)


def render(source: str, messages=CONVERSATION, **variables) -> str:
    return ChatTemplate(source, bos_token="<s>", eos_token="</s>").render(messages, **variables)


def test_tokens_flags_and_variables_reach_the_template():
    source = "{{ bos_token }}{{ eos_token }}{{ add_generation_prompt }}{{ tools is none }}{{ documents }}{{ mood }}"
    assert render(source, mood="good") == "<s></s>TrueTrueNonegood"
    assert render(source, add_generation_prompt=False, tools=[], documents=["d"]) == "<s></s>FalseFalse['d']"


def test_block_lines_leave_no_white_space():
    source = "{% for m in messages %}\n    {% if loop.first %}\n  x\n    {% endif %}\n{% endfor %}\ny"
    assert render(source) == "  x\ny"


def test_break_and_continue():
    skip, stop = "{% if i == 1 %}{% continue %}{% endif %}", "{% if i == 4 %}{% break %}{% endif %}"
    source = "{% for i in range(9) %}" + skip + stop + "{{ i }}{% endfor %}"
    assert render(source) == "023"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", '{"b": "<é\'&>", "a": [1, true, null]}'),
        ("(ensure_ascii=True)", '{"b": "<\\u00e9\'&>", "a": [1, true, null]}'),
        ("(separators=(',', ':'))", '{"b":"<é\'&>","a":[1,true,null]}'),
        ("(sort_keys=True)", '{"a": [1, true, null], "b": "<é\'&>"}'),
        ("(indent=2)", '{\n  "b": "<é\'&>",\n  "a": [\n    1,\n    true,\n    null\n  ]\n}'),
    ],
)
def test_tojson_writes_plain_json(arguments, expected):
    assert render("{{ x | tojson" + arguments + " }}", x={"b": "<é'&>", "a": [1, True, None]}) == expected


def test_from_json_reads_what_tojson_wrote():
    assert (
        render("{% for k, v in (x | tojson | from_json).items() %}{{ k }}={{ v }};{% endfor %}", x={"a": 1}) == "a=1;"
    )


def test_generation_tag_is_as_if_absent():
    source = (
        "{% for m in messages %}{% if m.role == 'assistant' %}"
        "[{% generation %}{% set seen = m.content %}{{ m.content }}{{ eos_token }}{% endgeneration %}]{{ seen }}"
        "{% endif %}{% endfor %}"
    )
    without = source.replace("{% generation %}", "").replace("{% endgeneration %}", "")
    assert render(source) == render(without) == "[Hello</s>]Hello"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("messages[::-1] | map(attribute='content') | join(',')", "Bye,Hello,Hi,Be brief."),
        ("messages[1:] | map(attribute='content') | join(',')", "Hi,Hello,Bye"),
        ("messages[-1].content", "Bye"),
        ("messages[-3:-1][0]['content']", "Hi"),
        ("messages[1:99:2] | length", "2"),
        ("messages[0].content[::-1]", ".feirb eB"),
        ("messages[0].content[-6:]", "brief."),
        ("messages[7].content is defined", "False"),
    ],
)
def test_lists_are_indexed_and_sliced_as_in_python(expression, expected):
    if expression.endswith("is defined"):
        expression = expression.replace(".content", "")
    assert render("{{ " + expression + " }}") == expected


def test_negative_index_kept_in_a_namespace():
    source = (
        "{% set ns = namespace(last=-1) %}{% for m in messages[::-1] %}"
        "{% if m.role == 'user' %}{{ messages[ns.last].content }},{% endif %}"
        "{% set ns.last = ns.last - 1 %}{% endfor %}"
    )
    assert render(source, CONVERSATION[1:]) == "Bye,Hi,"


@pytest.mark.parametrize(
    ("format_", "expected"),
    [
        ("%d %b %Y", "26 Jul 2024"),
        ("%Y-%m-%d %H:%M:%S", "2024-07-26 13:05:09"),
        ("%B %d, %Y", "July 26, 2024"),
        ("%A %j %%", "Friday 208 %"),
    ],
)
def test_date_function_formats_the_given_time(format_, expected):
    source = "{% if strftime_now is defined %}{{ strftime_now('" + format_ + "') }}{% endif %}"
    assert render(source, clock=clock) == expected


def test_date_function_uses_local_time_by_default():
    before = datetime.now()
    shown = render("{{ strftime_now('%Y-%m-%d %H:%M:%S.%f') }}")
    assert before <= datetime.strptime(shown, "%Y-%m-%d %H:%M:%S.%f") <= datetime.now()


def test_refusal_carries_the_templates_own_words_and_no_prompt():
    messages = [{"role": role, "content": "x"} for role in ["user"] * 3 + ["assistant"] * 3]
    with pytest.raises(TemplateError) as caught:
        render(ALTERNATING, messages)
    assert str(caught.value) == "Conversation roles must alternate user/assistant/user/assistant/..."
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("source", "line", "column"),
    [
        ("{% for m in messages %}\n  {{ m.content }\n{% endfor %}", 2, 16),
        ("{{ a b }}", 1, 6),
        ("x\n  {% frobnicate %}", 2, 6),
        ("x\r\n  {% frobnicate %}", 2, 6),
        ("{% if true %}\ny", 2, 2),
        ("\n{{ 'open }}", 2, 4),
        ("\n\n   {{ a | nosuchfilter }}", 3, 4),
        ("{{ messages[ }}", 1, 14),
        ("{% set 1 = 2 %}", 1, 10),
    ],
)
def test_syntax_error_waits_for_render_and_names_line_and_column(source, line, column):
    template = ChatTemplate(source, name="model.gguf")
    for _ in range(2):
        with pytest.raises(TemplateError, match=rf"^model\.gguf, line {line}, column {column}: \S"):
            template.render(CONVERSATION)


def test_failure_while_rendering_names_the_line():
    with pytest.raises(TemplateError, match=r"^<template>, line 3: TypeError: can only concatenate"):
        render("a\n{% for m in messages %}\n{{ m.content + 1 }}\n{% endfor %}")
    with pytest.raises(TemplateError, match=r"line 2: UndefinedError: 'nobody' is undefined"):
        render("{% macro m() %}\n{{ nobody.name }}{% endmacro %}\n{{ m() }}")


def test_missing_variable_is_empty_like_in_jinja():
    assert render("[{{ nobody }}{% if nobody is defined %}x{% endif %}]") == "[]"


def test_messages_tools_and_variables_stay_as_they_were():
    tools, extra = [{"function": {"name": "f"}}], {"a": [1, (2, 3)]}
    given = copy.deepcopy((CONVERSATION, tools, extra))
    source = "{% set _ = messages[0] %}{% set messages = messages[1:] %}{{ messages | length }}{{ extra.a[1] }}"
    assert ChatTemplate(source).render(CONVERSATION, tools=tools, extra=extra) == "3(2, 3)"
    assert (CONVERSATION, tools, extra) == given


def test_text_parts_are_joined():
    parts = [{"type": "text", "text": "Hello "}, {"type": "text", "text": "you"}]
    assert render(TURNS, [{"role": "user", "content": parts}]) == "<user>Hello you</user>"
    assert render(TURNS, [{"role": "user", "content": []}]) == "<user></user>"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "u"}}], "message 1.*'image_url'"),
        ([{"type": "input_audio"}], "'input_audio'"),
        ([{"text": "x"}], "type None"),
        (["x"], "'str'"),
        ([{"type": "text"}], "without text"),
        ({"text": "x"}, "not dict"),
        (3, "not int"),
    ],
)
def test_other_content_is_refused_by_name(content, words):
    with pytest.raises(TemplateError, match=words):
        render(TURNS, [CONVERSATION[0], {"role": "user", "content": content}])


@pytest.mark.parametrize("messages", ["Hi", {"role": "user"}, None, ["Hi"], [{"content": "x"}], [{"role": 1}]])
def test_what_is_no_conversation_is_refused(messages):
    with pytest.raises(TemplateError, match="message"):
        render(TURNS, messages)


def test_null_content_is_none_where_asked_and_empty_elsewhere():
    messages = [{"role": "assistant", "content": None, "tool_calls": []}]
    assert render("{{ messages[0].content is none }}{{ messages[0].content == none }}", messages) == "TrueTrue"
    assert render("{{ messages[0].content is not none }}{{ messages[0].content != none }}", messages) == "FalseFalse"
    assert render("{{ '<' + messages[0].content + '>' }}{{ messages[0].content.split('x') }}", messages) == "<>['']"
    assert render("{{ messages[0].content }}{{ 'x' in messages[0].content }}", messages) == "False"
    assert render("{% if not messages[0].content %}empty{% endif %}", messages) == "empty"


def test_missing_content_stays_undefined():
    assert render("{{ messages[0].content is defined }}", [{"role": "assistant"}]) == "False"


@pytest.mark.parametrize("content", ["Hi John,", "Hi John, ", " two\nlines \n", ""])
def test_continued_message_ends_the_prompt_exactly(content):
    messages = [CONVERSATION[1], {"role": "assistant", "content": content}]
    expected = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n" + content
    prompt = render(CHATML, messages, add_generation_prompt=False, continue_final_message=True)
    assert prompt == expected
    trimming = CHATML.replace("m['content']", "m['content'] | trim")
    messages[1]["content"] = [{"type": "text", "text": content}]
    prompt = render(trimming, messages, add_generation_prompt=False, continue_final_message=True)
    assert prompt == expected.replace(content, content.lstrip()) if content else prompt == expected


def test_continuing_keeps_private_use_characters_of_the_conversation():
    messages = [{"role": "user", "content": "\ue0ff\ue0fe"}, {"role": "assistant", "content": "a\ue0ff"}]
    prompt = render(TURNS, messages, add_generation_prompt=False, continue_final_message=True)
    assert prompt == "<user>\ue0ff\ue0fe</user><assistant>a\ue0ff"


def test_finishing_and_continuing_exclude_each_other():
    with pytest.raises(ArgumentError, match="excludes"):
        render(CHATML, continue_final_message=True)
    with pytest.raises(ArgumentError, match="text"):
        render(CHATML, [], add_generation_prompt=False, continue_final_message=True)
    with pytest.raises(TemplateError, match="does not write the last message"):
        render("{{ messages[0].content }}", add_generation_prompt=False, continue_final_message=True)


NO_SYSTEM = {
    "refused": "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}{% endfor %}",
    "left out": "{% for m in messages if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endfor %}",
}


@pytest.mark.parametrize("source", NO_SYSTEM.values(), ids=NO_SYSTEM)
def test_without_a_system_role_the_users_message_says_it(source):
    assert not ChatTemplate(source).takes_system
    assert render(source) == "<user>Be brief.\n\nHi<assistant>Hello<user>Bye"
    twice = [*CONVERSATION, CONVERSATION[0], {"role": "system", "content": [{"type": "text", "text": "Be kind."}]}]
    assert render(source, twice).endswith("<user>Bye<user>Be brief.\n\nBe kind.")
    assert render(source, [CONVERSATION[0]]) == "<user>Be brief."
    assert render(source, [CONVERSATION[0], {"role": "user", "content": None}]) == "<user>Be brief.\n\n"


def test_a_template_that_refuses_every_conversation_says_so_itself():
    with pytest.raises(TemplateError, match=r"^never$"):
        render("{{ raise_exception('never') }}")


def test_the_developer_is_the_system_where_a_template_does_not_know_the_word():
    messages = [{"role": "developer", "content": "Be brief."}, CONVERSATION[1]]
    assert render(TURNS, messages) == "<system>Be brief.</system><user>Hi</user>"
    knows = TURNS + "{# developer #}"
    assert render(knows, messages) == "<developer>Be brief.</developer><user>Hi</user>"


@pytest.mark.parametrize("name", ["thinking", "reasoning", "thought", "reasoning_content"])
def test_reasoning_comes_by_the_name_a_template_reads(name):
    source = "{% for message in messages %}[{{ message['NAME'] }}]{{ message.content }}{% endfor %}".replace(
        "NAME", name
    )
    assert render(source, [{"role": "assistant", "content": "a", "reasoning_content": "r"}]) == "[r]a"
    assert render(source, [{"role": "assistant", "content": "a", name: "own"}]) == "[own]a"


def test_the_variables_of_a_template_are_those_it_reads_unset():
    source = "{% set a = b %}{% for c in messages %}{{ a }}{{ c.d }}{{ enable_thinking }}{% endfor %}"
    assert ChatTemplate(source).variables == {"b", "messages", "enable_thinking"}
    assert ChatTemplate("{% for %}").variables == frozenset()


def test_tools_reach_a_template_that_has_another_name_for_them():
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert render("{{ xml_tools[0].function.name }}{{ tools is defined }}", tools=tools) == "fTrue"
    assert render("{{ xml_tools is none }}", tools=None) == "True"


def test_errors_are_of_the_tree():
    with pytest.raises(EdgeLLMError):
        render("{{ 1 / 0 }}")
