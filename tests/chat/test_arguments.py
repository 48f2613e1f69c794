"""Arguments of earlier tool calls, as an object or as JSON text, through templates that take the one or the other."""

import copy

import pytest

from edgellm.chat import ChatTemplate
from edgellm.errors import TemplateError

CALLS = "{% for m in messages %}{% for c in m.tool_calls %}"
END = "{% endfor %}{% endfor %}"
TEMPLATES = {
    "json": CALLS + "{{ c.function.arguments | tojson }}" + END,
    "items": CALLS + "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }};{% endfor %}" + END,
    "concatenation": CALLS + "{{ '' + c.function.arguments }}" + END,
    "print": CALLS + "{{ c.function.arguments }}" + END,
    "either": CALLS
    + "{{ c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}"
    + END,
}
WRITTEN = {"items": "a=3;b=é;"}
NOTHING = {"items": ""}


def render(name: str, arguments: object) -> str:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    before = copy.deepcopy(messages)
    text = ChatTemplate(TEMPLATES[name]).render(messages)
    assert messages == before
    return text


@pytest.mark.parametrize("arguments", [{"a": 3, "b": "é"}, '{"a": 3, "b": "é"}'], ids=["object", "text"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_one_level_of_json_whatever_was_given(name, arguments):
    assert render(name, arguments) == WRITTEN.get(name, '{"a": 3, "b": "é"}')


@pytest.mark.parametrize("arguments", ["", " \n", None, {}, "{}"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_nothing_means_no_arguments(name, arguments):
    assert render(name, arguments) == NOTHING.get(name, "{}")


@pytest.mark.parametrize(
    ("name", "expected"), [("json", '"{not json"'), ("concatenation", "{not json"), ("either", "{not json")]
)
def test_text_that_is_no_json_passes_through(name, expected):
    assert render(name, "{not json") == expected


def test_text_that_is_no_json_fails_where_an_object_is_needed():
    with pytest.raises(TemplateError, match="items"):
        render("items", "{not json")


@pytest.mark.parametrize("arguments", ["[1]", "3", '"a"', "null"])
def test_json_that_is_no_object_passes_through(arguments):
    assert render("either", arguments) == arguments


def test_calls_without_arguments_and_in_the_flat_form():
    text = ChatTemplate("{# [TOOL_CALLS] #}" + TEMPLATES["json"] + CALLS + "{{ c.arguments | tojson }}" + END)
    calls = [{"function": {"name": "f"}, "arguments": "{}"}]
    assert text.render([{"role": "assistant", "tool_calls": calls}]) == '{}"{}"'
    flat = ChatTemplate("{# [TOOL_CALLS] #}" + CALLS + "{{ c.arguments | tojson }}" + END)
    assert flat.render([{"role": "assistant", "tool_calls": [{"name": "f", "arguments": '{"a": 1}'}]}]) == '{"a": 1}'


def test_arguments_nested_endlessly_are_refused_or_passed_but_never_crash():
    deep = '{"a": ' * 100_000 + "1" + "}" * 100_000
    with pytest.raises(TemplateError):
        render("items", deep)
    with pytest.raises(TemplateError, match="nested deeper"):
        render("json", '{"a": ' * 200 + "1" + "}" * 200)
