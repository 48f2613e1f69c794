"""Free text before the structured part."""

from __future__ import annotations

import pytest

from edgellm.errors import GrammarError
from edgellm.structured import wanted
from edgellm.structured.reasoning import after
from edgellm.structured.toolcalls import Token
from tests.structured.test_toolcalls import outcome
from tests.structured.toy import COMPILER, TOOL

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
FORMS = [
    ({"schema": SCHEMA}, '{"a": 3}', {"a": 3}),
    ({"json": True}, "{}", {}),
    ({"regex": "[ab]c"}, "bc", "bc"),
    ({"choices": ["yes", "no"]}, "no", "no"),
    ({"grammar": 'root ::= "x" "y"'}, "xy", "xy"),
    ({"grammar": 'start: A %json {"const": 1}\nA: "x"'}, "x1", "x1"),
]


@pytest.mark.parametrize(("asked", "text", "value"), FORMS)
@pytest.mark.parametrize("between", ["", "\n\n", " "])
def test_free_text_then_structure(asked, text, value, between):
    grammar = after("</think>", wanted(**asked))
    whole = f"Let me see: </thin {{1}}</think>{between}{text}"
    assert outcome(grammar, whole) == "done"
    assert grammar.value(whole) == value
    assert outcome(grammar, whole[: -len(text)]) == "open"
    assert outcome(grammar, f"</think>{between}{text}") == "done"
    assert outcome(grammar, f"{text}") == "open"
    assert outcome(grammar, "x</think>?") == "not ?"


@pytest.mark.parametrize(("asked", "text", "value"), FORMS)
@pytest.mark.parametrize("opening", ["<think>", Token(TOOL)])
def test_free_text_that_may_be_missing(asked, text, value, opening):
    grammar = after("</think>", wanted(**asked), opening=opening)
    begin = opening if isinstance(opening, str) else TOOL
    assert outcome(grammar, text) == "done"
    assert outcome(grammar, begin, f"hm</think>\n{text}") == "done"
    assert outcome(grammar, "\n", begin, "</think>", text) == "done"
    assert outcome(grammar, begin, text) == "open"
    assert outcome(grammar, "?").startswith("not")
    if isinstance(opening, str):
        assert grammar.value(text) == grammar.value(f"{opening}{{</think>{text}") == value


@pytest.mark.parametrize(("asked", "text", "value"), FORMS)
def test_a_control_token_as_marker(asked, text, value):
    grammar = after(Token(TOOL), wanted(**asked))
    assert outcome(grammar, "hm", TOOL, text) == "done"
    assert outcome(grammar, "hm", TOOL, "\n", text) == "done"
    assert outcome(grammar, "hm", TOOL, "?") == "not ?"
    assert grammar.value(text) == value


def test_control_tokens_in_the_free_text():
    grammar = after("</think>", wanted(regex="a"), controls=[TOOL])
    assert outcome(grammar, TOOL, "x", TOOL, "</think>a") == "done"
    assert outcome(grammar, "</think>", TOOL) == f"not {TOOL}"


def test_faults_of_the_grammar_are_still_found():
    with pytest.raises(GrammarError, match="unclosed group"):
        COMPILER.compile(after("</think>", wanted(regex="(")))
    with pytest.raises(GrammarError, match=r"schema at \$\.items: .*foo"):
        COMPILER.compile(after("</think>", wanted(schema={"items": {"type": "foo"}})))
