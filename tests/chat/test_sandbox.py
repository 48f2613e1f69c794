"""A template from a stranger's file runs nothing and changes nothing."""

import copy
import os

import pytest

from edgellm.chat import ChatTemplate
from edgellm.errors import TemplateError

USER = [{"role": "user", "content": "{0.__class__} {x.__init__.__globals__}"}]

ATTACKS = {
    "globals of a builtin helper (CVE-2024-34359)": "{{ cycler.__init__.__globals__.os.popen('touch PWNED').read() }}",
    "globals of namespace (CVE-2024-34359)": "{{ namespace.__init__.__globals__['os'].system('touch PWNED') }}",
    "globals of lipsum": "{{ lipsum.__globals__['os'].popen('touch PWNED').read() }}",
    "subclasses of a string's class (CVE-2026-5760)": (
        "{% for c in ''.__class__.__mro__[1].__subclasses__() %}"
        "{% if c.__name__ == 'catch_warnings' %}"
        "{{ c()._module.__builtins__['__import__']('os').popen('touch PWNED').read() }}{% endif %}{% endfor %}"
    ),
    "class of a tuple": "{{ ().__class__.__base__.__subclasses__() }}",
    "attr filter": "{{ ''|attr('__class__')|attr('mro') }}",
    "attr filter, spelled apart": "{{ ''|attr('__cla' ~ 'ss__')|attr('__m' ~ 'ro__') }}",
    "subscript as attribute": "{{ ''['__class__']['__mro__'] }}",
    "map by attribute": "{{ [''] |map(attribute='__class__')|map(attribute='__mro__')|list|tojson }}",
    "format on a user's text": "{{ messages[0].content.format(messages, x=cycler) }}",
    "format on own text": "{{ '{0.__class__.__mro__}'.format('') }}",
    "format_map": "{{ '{a.__class__.__mro__}'.format_map({'a': ''}) }}",
    "format through the attr filter": "{{ ('{0.__class__.__mro__}'|attr('format'))('') }}",
    "format through map": "{{ ['{0.__class__.__mro__}']|map(attribute='format')|map('string')|first }}{{ 1 .x.y }}",
    "method starting with an underscore": "{{ messages.__len__() }}",
    "globals of raise_exception": "{{ raise_exception.__globals__ }}",
    "method behind strftime_now": "{{ strftime_now.__self__.globals }}",
    "function behind a macro": "{% macro m() %}{% endmacro %}{{ m._func.__globals__ }}",
    "self of a loop": "{% for m in messages %}{{ loop.__class__.__init__.__globals__ }}{% endfor %}",
    "environment of self": "{{ self._TemplateReference__context.environment.budget.limits.x }}",
    "generator frame": "{{ (messages|map('string')).gi_frame.f_globals }}",
    "append to messages": "{{ messages.append(1) }}",
    "clear a message": "{{ messages[0].clear() }}",
    "update a message": "{% set _ = messages[0].update({'role': 'system'}) %}",
    "pop from tools": "{{ tools.pop() }}",
    "setdefault": "{{ messages[0].setdefault('x', 1) }}",
    "encode to bytes": "{{ 'a'.encode().hex() }}",
    "number methods": "{{ (1).to_bytes(1000000000, 'big') }}",
    "class methods of dict": "{{ dict.fromkeys([1], 2) }}",
    "attribute of a class": "{{ dict.mro() }}",
    "do tag": "{% do messages.append(1) %}",
    "hook of the sandbox": "{{ 1|*tick }}",
}


@pytest.mark.parametrize("source", ATTACKS.values(), ids=ATTACKS.keys())
def test_attack_is_refused_and_leaves_no_trace(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    messages, tools = copy.deepcopy(USER), [{"type": "function"}]
    with pytest.raises(TemplateError):
        ChatTemplate(source).render(messages, tools=tools)
    assert messages == USER
    assert tools == [{"type": "function"}]
    assert os.listdir(tmp_path) == []


def test_user_text_with_format_fields_stays_text():
    out = ChatTemplate("{{ messages[0].content }}|{{ '%s' | format(messages[0].content) }}").render(USER)
    assert out == "|".join([USER[0]["content"]] * 2)


def test_user_text_with_template_syntax_stays_text():
    messages = [{"role": "user", "content": "{{ 7 * 7 }}{% raw %}<b>&"}]
    assert ChatTemplate("{{ messages[0].content }}").render(messages) == messages[0]["content"]


@pytest.mark.parametrize(
    "source",
    [
        "{% include '/etc/passwd' %}",
        "{% include ['a', 'b'] ignore missing %}",
        "{% import 'os' as os %}",
        "{% from 'os' import system %}",
        "{% extends 'base' %}",
    ],
)
def test_other_templates_are_out_of_reach(source):
    with pytest.raises(TemplateError, match="may not include, import or extend"):
        ChatTemplate(source).render(USER)


def test_objects_of_the_caller_are_refused():
    class Live:
        secret = "x"

    for value in (Live(), print, b"bytes", {1, 2}, [Live()], {"a": {"b": Live()}}):
        with pytest.raises(TemplateError, match="extra"):
            ChatTemplate("{{ extra }}").render(USER, extra=value)


def test_methods_overridden_in_a_text_subclass_are_not_called():
    class Evil(str):
        def __str__(self):
            raise AssertionError("called")

        def upper(self):
            raise AssertionError("called")

    out = ChatTemplate("{{ messages[0].content.upper() }}").render([{"role": "user", "content": Evil("hi")}])
    assert out == "HI"


def test_self_containing_value_is_refused():
    loop: list = []
    loop.append(loop)
    with pytest.raises(TemplateError, match="nested deeper"):
        ChatTemplate("{{ extra }}").render(USER, extra=loop)


def test_changes_inside_a_rendering_do_not_reach_the_next():
    template = ChatTemplate("{% set ns = namespace(n=0) %}{% set ns.n = ns.n + 1 %}{{ ns.n }}")
    assert [template.render(USER) for _ in range(3)] == ["1", "1", "1"]
