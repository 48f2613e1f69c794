"""Lark and GBNF: what they mean, and what is refused before it is compiled."""

from __future__ import annotations

import time

import pytest

from edgellm.errors import ArgumentError, GrammarError
from edgellm.structured.lark import text_grammar
from tests.structured.toy import COMPILER, accepts, draw

JSON_GBNF = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws (
             value   # one or more
    ("," ws value)*
  )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9]+)? ws
ws ::= | " " | "\n" [ \t]{0,20}
"""

CASES = [
    ('root ::= root "a" | "b"', ["b", "baa"], ["", "a", "ab"]),
    ('root ::= e\ne ::= [0-9] | e "+" e', ["1", "1+2+3"], ["+", "1+", "12"]),
    ('start: start "a" | "b"', ["b", "baa"], ["", "a", "ab"]),
    ('start: e\ne: /[0-9]/ | e "+" e', ["1", "1+2+3"], ["+", "1+", "12"]),
    ('root ::= ("a"*)*', ["", "aaa"], ["b"]),
    ('root ::= (("")*)*', [""], ["a"]),
    ('start: (("a"*)*)*', ["", "aaa"], ["b"]),
    ('root ::= "x"{2,4}', ["xx", "xxxx"], ["x", "xxxxx"]),
    ('root ::= "x"{3}"y"{1,}', ["xxxy", "xxxyy"], ["xxy", "xxx"]),
    ('root ::= "(" root ")" | ', ["", "(())"], ["(", "())"]),
    ('root ::= "a"? "b"+ | ( | "c") "d"', ["d", "cd", "abb"], ["c", "a", "ad"]),
    (r'root ::= "\u00e9" [à-ï] "\x41\"\\" "\U0001F600"', ['éàA"\\😀'], ["éàA", 'éaA"\\😀']),
    (r"root ::= [-a] [a-] [\]x] [/\\] [^\n-]", ["--]/b", r"aax\ "], ["--]/-", "-b]/b", "--]/\n"]),
    ("root ::= . .", ["\né", "ab"], ["a", "abc"]),
    (
        'Root ::= "no"\nroot ::= Root | root2\nroot2 ::= my-rule\nmy-rule ::= my_rule\nmy_rule ::= "yes"',
        ["no", "yes"],
        [""],
    ),
    (JSON_GBNF, ['{"a": [1, -2.5e3, "x\\n", null]}'], ['{"a": 01}', "[]", '{"a" 1}', '{"a":  1}']),
    ('# a comment with start: in it\nroot ::= # and "here"\n  "a" |\n  "b"', ["a", "b"], ["ab"]),
    ('// a comment\nstart: A /b/ // "\nA: "x"+', ["xb", "xxb"], ["b"]),
    ('%ignore / +/\nstart: "a" "b"', ["ab", "a  b"], ["ba"]),
    ('?start: "a"i', ["a", "A"], ["b"]),
]


@pytest.mark.parametrize(("text", "good", "bad"), CASES, ids=[text[:30] for text, _, _ in CASES])
def test_what_grammars_accept(text, good, bad):
    grammar = text_grammar(text)
    assert [sample for sample in good if not accepts(grammar, sample)] == []
    assert [sample for sample in bad if accepts(grammar, sample)] == []


@pytest.mark.parametrize("seed", range(20))
def test_random_tokens_follow_a_grammar_of_json(seed):
    import json

    text, complete = draw(text_grammar(JSON_GBNF), seed, 300)
    if complete:
        assert isinstance(json.loads(text), dict)
    else:
        assert text.startswith(b"{")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('foo ::= "a"', "root"),
        ("root ::= b", "line 1: rule b is not defined"),
        ('root ::= "a"\n\nroot ::= "b"', "line 3: rule root is defined twice"),
        ('root ::= "a")', "line 1: there is no parenthesis to close"),
        ('root ::= ("a"\nb ::= "c"', "line 2: a parenthesis is not closed before"),
        ('root ::= ("a"', "a parenthesis is not closed"),
        ('root ::= "a', "line 1: unexpected '\"a'"),
        ("root ::= [a", "line 1: unexpected"),
        ("root ::= [z-a]", "z-a is no range"),
        ("root ::= []", "holds no character"),
        (r'root ::= "\ud800"', "is no character"),
        (r'root ::= "\q"', r"unknown escape \\q"),
        ("root ::= *", "nothing to repeat"),
        ("root ::= <nope>", "unknown special token"),
        ("root ::= root", "no text of this model's tokens"),
        ("start: start", "no text of this model's tokens"),
        ('start: "a" b', 'unknown name: "b"'),
        ("start: /(a/", "unclosed group"),
        ('start: %json {"items": {"not": {}}}', r'"not" at \$.items is not supported'),
        ('start: %json {"type": "integer"', "no JSON Schema after %json"),
        ("start: %json " + '{"items":' * 3_000 + "1" + "}" * 3_000, "nested"),
        ("hello", "must begin with a rule"),
        ("", "empty"),
        ("# nothing\n", "empty"),
        ('root ::= "\ud800"', "lone surrogate at index 10"),
    ],
)
def test_faults_are_named(text, message):
    with pytest.raises(GrammarError, match=message):
        COMPILER.compile(text_grammar(text))


def test_messages_show_the_users_lines_and_none_of_ours():
    with pytest.raises(GrammarError) as caught:
        COMPILER.compile(text_grammar('start: "a" b'))
    assert '1 | start: "a" b' in str(caught.value)
    assert "llguidance" not in str(caught.value)


def test_a_grammar_is_a_text():
    with pytest.raises(ArgumentError, match="must be a text, not int"):
        text_grammar(5)


def chain(n: int, define: str, first: str) -> str:
    rules = [f'{first if i == 0 else f"r{i}"} {define} r{i + 1} "x"' for i in range(n)]
    return "\n".join([*rules, f'r{n} {define} "y"'])


@pytest.mark.parametrize(
    "text",
    [
        "root ::= " + "(" * 60_000 + '"a"' + ")" * 60_000,
        "start: " + "(" * 60_000 + '"a"' + ")" * 60_000,
        chain(5_000, "::=", "root"),
        chain(5_000, ":", "start"),
        "A: /[/((]/\n" + chain(5_000, ":", "start"),
        "start: R0\n" + "\n".join(f'R{i}: R{i + 1} "x"' for i in range(5_000)) + '\nR5000: "y"',
        'start: "' + "a" * 300_000 + '"',
    ],
    ids=["gbnf parentheses", "lark parentheses", "gbnf chain", "lark chain", "odd", "terminal chain", "long"],
)
def test_what_is_too_deep_or_too_long_is_refused_fast(text):
    began = time.perf_counter()
    with pytest.raises(GrammarError, match="limit"):
        COMPILER.compile(text_grammar(text))
    assert time.perf_counter() - began < 30


@pytest.mark.parametrize(
    "text",
    [
        'root ::= "x"{1,100000}',
        'root ::= ("x"{1,100000}){1,100000}',
        'root ::= a{1,100000}\na ::= "x" a | "y"',
        'start: (a{1,100000}){1,100000}\na: "x" | a "y"',
        chain(400, ":", "start"),
    ],
)
def test_great_repetitions_cost_nothing_before_they_are_used(text):
    assert draw(text_grammar(text), 1, 30)[0][:1] in (b"x", b"y")


def test_white_space_of_schemas_within_a_grammar_is_bounded():
    grammar = text_grammar('start: %json {"type": "array", "items": {"type": "integer"}}')
    assert accepts(grammar, "[1, 2]")
    assert not accepts(grammar, "[1,  2]")
