"""A template cannot take the host's time or memory."""

import threading
import time
import tracemalloc

import pytest

from edgellm.chat import ChatTemplate, Limits
from edgellm.errors import TemplateError

USER = [{"role": "user", "content": "hi"}]
SMALL = Limits(seconds=2.0, steps=200_000, chars=1_000_000)


def doubling(start: str, step: str, times: int = 40) -> str:
    return f"{{% set x = {start} %}}" + f"{{% set x = {step} %}}" * times + "{{ x }}"


BOMBS = {
    "repeat": "{{ 'a' * 10**9 }}",
    "repeat from the left": "{{ 10**9 * 'a' }}",
    "repeat by steps": doubling("'aaaaaaaaaa'", "x * 10"),
    "repeat a list": "{{ [1] * 10**9 }}",
    "add": doubling("'a'", "x + x"),
    "concatenate": doubling("'a'", "x ~ x"),
    "double by a set block": "{% set x %}a{% endset %}" + "{% set x %}{{ x }}{{ x }}{% endset %}" * 40,
    "double by a macro": "{% macro d(s) %}{{ s }}{{ s }}{% endmacro %}" + doubling("'a'", "d(x)"),
    "double by join": doubling("'a'", "[x, x] | join"),
    "double by the join method": doubling("'a'", "''.join([x, x])"),
    "double by format": doubling("'a'", "'%s%s' | format(x, x)"),
    "double by %": doubling("'a'", "'%s%s' % (x, x)"),
    "double by str.format": doubling("'a'", "'{0}{0}'.format(x)"),
    "double by format_map": doubling("'a'", "'{a}{a}'.format_map({'a': x})"),
    "double by replace": doubling("'aa'", "x.replace('a', 'aa')"),
    "double by the replace filter": doubling("'aa'", "x | replace('a', 'aa')"),
    "double by named replace": doubling("'aa'", "x | replace(old='a', new='aa')"),
    "lists in lists": doubling("[1]", "[x, x]"),
    "tuples in tuples": doubling("(1,)", "(x, x)"),
    "dicts in dicts": doubling("{}", "{'a': x, 'b': x}"),
    "dict() in dict()": doubling("dict()", "dict(a=x, b=x)"),
    "lists in lists, compared": doubling("[1]", "[x, x]").replace("{{ x }}", "{{ [x] == [[1]] }}"),
    "lists in lists, as JSON": doubling("[1]", "[x, x]").replace("{{ x }}", "{{ x | tojson }}"),
    "lists through a namespace": "{% set n = namespace(x=[1]) %}" + "{% set n.x = [n.x, n.x] %}" * 40 + "{{ n.x }}",
    "namespaces that print each other": (
        "{% set n = namespace(x=0) %}{% for i in range(40) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ [n] }}"
    ),
    "deep tuple as a key": (
        "{% set n = namespace(x=(1,)) %}{% for i in range(100000) %}{% set n.x = (n.x,) %}{% endfor %}{{ {n.x: 1} }}"
    ),
    "power": "{{ 10 ** (10 ** 10) }}",
    "power of a power": "{{ 9**9**9**9**9 }}",
    "square forty times": doubling("3", "x * x"),
    "range": "{% for i in range(1000000) %}{% endfor %}",
    "nested ranges of 10^6": "{% for i in range(10**6) %}{% for j in range(10**6) %}{% endfor %}{% endfor %}",
    "nested ranges of 10^5": "{% for i in range(10**5) %}{% for j in range(10**5) %}{% endfor %}{% endfor %}",
    "filtered loops": "{% for i in range(99999) %}{% for j in range(99999) if false %}{% endfor %}{% endfor %}",
    "nested filters": "{% for i in range(99999) %}{{ range(99999) | select('odd') | list | length }}{% endfor %}",
    "sorting in a loop": "{% set r = range(99999) | list %}{% for i in r %}{% set _ = r | sort %}{% endfor %}",
    "output in a loop": "{% for i in range(99999) %}" + "x" * 1000 + "{% endfor %}",
    "recursive macro": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "branching recursive macro": "{% macro m(n) %}{% if n %}{{ m(n-1) ~ m(n-1) }}{% endif %}{% endmacro %}{{ m(50) }}",
    "recursive loop": "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "recursive block": "{% block b %}{{ self.b() }}{% endblock %}",
    "center": "{{ 'a' | center(10**9) }}",
    "center, named": "{{ 'a' | center(width=10**9) }}",
    "center method": "{{ 'a'.center(10**9) }}",
    "ljust": "{{ 'a'.ljust(10**9) }}",
    "zfill": "{{ 'a'.zfill(10**9) }}",
    "indent": "{{ 'a\nb' | indent(10**9) }}",
    "indent with text": "{{ ('a\n' * 100000) | indent('x' * 100000) }}",
    "JSON indent": "{{ [1] | tojson(indent=10**9) }}",
    "JSON separators": "{{ ([1] * 100000) | tojson(separators=('x' * 900000, 'y')) }}",
    "format width": "{{ '{:1000000000}'.format(1) }}",
    "format width as an argument": "{{ '{:{}}'.format(1, 10**9) }}",
    "format precision": "{{ '{:.1000000000f}'.format(1) }}",
    "% width": "{{ '%1000000000d' % 1 }}",
    "% width as an argument": "{{ '%*d' % (10**9, 1) }}",
    "% precision": "{{ '%.1000000000f' % 1 }}",
    "% in the filter": "{{ '%1000000000d' | format(1) }}",
    "% of a named value": "{{ ('%(a)s' * 90000) % {'a': 'x' * 900000} }}",
    "round": "{{ 1.5 | round(10**9, 'ceil') }}",
    "batch": "{{ [1] | batch(10**9, 0) | list }}",
    "slice": "{{ [1] | slice(10**9) | list }}",
    "sum of lists": "{{ range(99999) | map('string') | map('list') | sum(start=[]) | length }}",
    "translate": "{{ ('a' * 99999).translate({97: 'b' * 99999}) }}",
    "expandtabs": "{{ '\t'.expandtabs(10**9) }}",
    "search backwards": "{{ ('a' * 900000).rfind('ab' ~ 'a' * 400000) }}",
    "strip by a long set": "{{ ('a' * 900000).strip('b' * 400000 ~ 'a') }}",
    "trim by a long set": "{{ ('a' * 900000) | trim('b' * 400000 ~ 'a') }}",
    "constant folding": "{% if false %}{{ 'a' | center(10**9) }}{% endif %}{{ 'a' | center(10**9) }}",
    "slices kept": "{% set s = 'a' * 900000 %}{% set n = namespace(l=[]) %}"
    "{% for i in range(9999) %}{% set n.l = n.l + [s[1:]] %}{% endfor %}",
    "splits kept": "{% set s = 'ab' * 400000 %}{% set n = namespace(l=[]) %}"
    "{% for i in range(9999) %}{% set n.l = n.l + [s.split('x')] %}{% endfor %}",
    "escapes": "{{ ('&' * 900000) | escape }}",
    "date format": "{{ strftime_now('%A' * 400000) }}",
    "long number": "{{ " + "9" * 100_000 + " }}",
    "deep parentheses": "{{ " + "(" * 50_000 + "1" + ")" * 50_000 + " }}",
    "long chain": "{{ 1" + " + 1" * 50_000 + " }}",
    "deep nots": "{{ " + "not " * 50_000 + "1 }}",
    "many nested loops": "{% for i in [1] %}" * 200 + "{% endfor %}" * 200,
    "too long a source": "x" * 300_000,
}


@pytest.mark.parametrize("source", BOMBS.values(), ids=BOMBS.keys())
def test_bomb_ends_in_a_typed_error(source):
    start = time.thread_time()
    with pytest.raises(TemplateError):
        ChatTemplate(source, limits=SMALL).render(USER)
    # A guard against a limit that does not bite at all, far above what any of them takes.
    assert time.thread_time() - start < 15


@pytest.mark.parametrize(
    "name", ["repeat", "repeat a list", "lists in lists", "center", "JSON indent", "output in a loop"]
)
def test_bomb_is_refused_before_it_takes_memory(name):
    template = ChatTemplate(BOMBS[name])
    with pytest.raises(TemplateError):
        template.render(USER)
    tracemalloc.start()
    try:
        with pytest.raises(TemplateError, match=r"too much text|at most"):
            template.render(USER)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64_000_000


def test_time_limit_ends_an_endless_walk():
    limits = Limits(seconds=0.2, steps=10**12)
    with pytest.raises(TemplateError, match=r"longer than 0\.2 seconds"):
        ChatTemplate(BOMBS["nested ranges of 10^5"], limits=limits).render(USER)


def test_step_limit_ends_an_endless_walk():
    with pytest.raises(TemplateError, match="more than 1000 steps"):
        ChatTemplate(BOMBS["nested ranges of 10^5"], limits=Limits(steps=1000)).render(USER)


def test_other_threads_run_while_a_bomb_is_refused():
    done = threading.Event()
    turns = 0

    def bomb() -> None:
        with pytest.raises(TemplateError):
            ChatTemplate(BOMBS["nested ranges of 10^5"], limits=Limits(seconds=0.5, steps=10**12)).render(USER)
        done.set()

    thread = threading.Thread(target=bomb)
    thread.start()
    while not done.wait(0.001):
        turns += 1
    thread.join()
    assert turns > 5


def test_template_works_again_after_a_refusal():
    template = ChatTemplate("{{ 'a' * n }}")
    with pytest.raises(TemplateError, match="too much text"):
        template.render(USER, n=10**9)
    assert template.render(USER, n=3) == "aaa"


def test_large_conversation_passes():
    messages = [{"role": "user", "content": "word " * 20_000}, {"role": "assistant", "content": "x" * 1000}] * 100
    source = "{% for m in messages %}{{ '<' ~ m.role ~ '>' + m.content | trim ~ '\n' }}{% endfor %}"
    out = ChatTemplate(source).render(messages)
    assert out == "".join(f"<{m['role']}>{m['content'].strip()}\n" for m in messages)


def test_many_short_messages_pass():
    messages = [{"role": "user", "content": str(i)} for i in range(20_000)]
    out = ChatTemplate("{% for m in messages %}{{ m.content }},{% endfor %}").render(messages)
    assert out.split(",")[:-1] == [str(i) for i in range(20_000)]


def test_a_loop_at_the_allowed_size_passes():
    assert ChatTemplate("{% for i in range(100000) %}{% endfor %}ok").render(USER) == "ok"
