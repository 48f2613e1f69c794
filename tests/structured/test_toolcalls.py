"""Free text with calls in it: nothing is demanded before the trigger, everything after it."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from typing import Any

import pytest

from edgellm.errors import ArgumentError, GrammarError
from edgellm.structured import Grammar
from edgellm.structured.toolcalls import Json, Marked, Opening, Pattern, Token, call_grammar
from tests.structured.toy import COMPILER, END, TABLE, TOOL, accepts, legal

SCHEMA = {
    "type": "object",
    "properties": {"name": {"const": "f"}, "arguments": {"type": "object", "properties": {"x": {"type": "integer"}}}},
    "required": ["name", "arguments"],
    "additionalProperties": False,
}
FORMS = [["\n", Json(SCHEMA), "\n</tool_call>"], ["=g>", Pattern("[0-9]+"), "!"]]
CALL = '<tool_call>\n{"name": "f", "arguments": {"x": 3}}\n</tool_call>'
SHORT = "<tool_call>=g>12!"


def outcome(grammar: Grammar, *parts: str | int) -> str:
    """ "done" if nothing may follow, "complete", "open", or what is not legal."""
    constraint = COMPILER.compile(grammar)
    tokens: list[int] = []
    for part in parts:
        tokens += [part] if isinstance(part, int) else part.encode()
    for token in tokens:
        if token not in legal(constraint):
            return f"not {token if token >= END else chr(token)}"
        constraint.advance(token)
    return "done" if constraint.finished else "complete" if constraint.complete else "open"


@pytest.mark.parametrize(
    ("settings", "outcomes"),
    [
        ({}, ["complete", "complete", "complete", "not x", "complete", "complete", "complete"]),
        ({"least": 1}, ["open", "open", "open", "not x", "complete", "complete", "complete"]),
        ({"least": 2}, ["open", "open", "open", "not x", "open", "complete", "open"]),
        ({"after": False}, ["complete", "complete", "complete", "not x", "complete", "complete", "not a"]),
        ({"most": 1}, ["complete", "complete", "complete", "not x", "complete", "not >", "complete"]),
        ({"most": 1, "after": False}, ["complete", "complete", "complete", "not x", "done", "not \n", "not  "]),
        ({"least": 1, "before": False}, ["open", "not h", "not <", "not x", "complete", "complete", "complete"]),
        (
            {"least": 1, "most": 1, "before": False, "after": False},
            ["open", "not h", "not <", "not x", "done", "not \n", "not  "],
        ),
    ],
)  # fmt: skip
def test_how_many_calls_and_what_is_around_them(settings, outcomes):
    grammar = call_grammar("<tool_call>", FORMS, **settings)
    texts = ["", "hi <tool_ca ll", "<<tool_cal", "<tool_call>x", CALL, f"{CALL}\n{SHORT}", f"{CALL} and"]
    assert [outcome(grammar, text) for text in texts] == outcomes


@pytest.mark.parametrize(
    ("settings", "outcomes"),
    [
        ({}, ["complete", "not x", "complete", "complete", "complete"]),
        ({"least": 1}, ["open", "not x", "complete", "complete", "complete"]),
        ({"least": 1, "before": False, "after": False}, ["not h", "not h", "not h", "complete", "not a"]),
    ],
)
def test_a_control_token_as_trigger(settings, outcomes):
    grammar = call_grammar(Token(TOOL), FORMS, **settings)
    texts: list[Sequence[Any]] = [
        ["hi"], ["hi", TOOL, "x"], ["hi", TOOL, "=g>1!"], [TOOL, "=g>1!", TOOL, "=g>2!"], [TOOL, "=g>1!", "a"],
    ]  # fmt: skip
    assert [outcome(grammar, *text) for text in texts] == outcomes


def test_control_tokens_are_legal_in_free_text_where_they_are_named():
    assert outcome(call_grammar("<tool_call>", FORMS), "a", TOOL) == f"not {TOOL}"
    grammar = call_grammar("<tool_call>", FORMS, controls=[TOOL])
    assert outcome(grammar, "a", TOOL, "b", TOOL, SHORT, "c", TOOL) == "complete"
    assert outcome(grammar, "<tool_call>", TOOL) == f"not {TOOL}"


def test_a_call_may_end_with_a_control_token():
    grammar = call_grammar("[CALL]", [[Json({"type": "integer"}), Token(TOOL)]], most=1, after=False)
    assert outcome(grammar, "[CALL]12", TOOL) == "done"
    assert outcome(grammar, "[CALL]12") == "open"


@pytest.mark.parametrize("trigger", ["aab", "aa", 'a"\\b', "é(*", "\n"])
@pytest.mark.parametrize("seed", range(5))
def test_random_texts_have_calls_wherever_they_have_the_trigger(trigger, seed):
    grammar = call_grammar(trigger, [[Json({"type": "boolean"}), ";"]], controls=[TOOL])
    rng, constraint, text = random.Random(seed), COMPILER.compile(grammar), b""
    planned: list[int] = []
    while len(text) < 300 or not constraint.complete:
        allowed = [token for token in legal(constraint) if token not in TABLE.ends]
        if not planned and rng.random() < 0.2:
            planned = list(trigger.encode())
        token = planned.pop(0) if planned and planned[0] in allowed else rng.choice(allowed)
        constraint.advance(token)
        text += TABLE.texts[token]
    pieces = text.decode().split(trigger)
    assert len(pieces) > 1
    for piece in pieces[1:]:
        assert re.match(r"(true|false);", piece)


def test_faults_are_refused():
    with pytest.raises(GrammarError, match=r'"not" at \$'):
        call_grammar("<", [[Json({"not": {}})]])
    with pytest.raises(ArgumentError, match="at least one form"):
        call_grammar("<", [])
    with pytest.raises(ArgumentError, match="3 to 2 calls"):
        call_grammar("<", FORMS, least=3, most=2)
    with pytest.raises(GrammarError, match="501 forms"):
        call_grammar("<", [["a"]] * 501)


def test_many_tools_compile():
    schemas = [{**SCHEMA, "properties": {**SCHEMA["properties"], "name": {"const": f"tool_{i}"}}} for i in range(128)]
    grammar = call_grammar("<t>", [[Json(schema), "</t>"] for schema in schemas])
    assert outcome(grammar, "<t>" + json.dumps({"name": "tool_77", "arguments": {}}) + "</t>") == "complete"


def test_what_a_text_begins_with_is_its_only_call() -> None:
    found = call_grammar(Opening("[0-9]+:"), [["x"]], most=1, after=False)
    assert [text for text in ("", "a 1:y", "1", "12:x", "12:y", "1:x ") if accepts(found, text)] == [
        "",
        "a 1:y",
        "1",
        "12:x",
    ]
    with pytest.raises(ArgumentError, match="is one call"):
        call_grammar(Opening("[0-9]+:"), [["x"]])


def test_a_mark_is_free_text_until_a_call_follows_it() -> None:
    found = call_grammar(Marked("#"), [["x", "1"], ["y", "2"]], begun="!")
    texts = ["!", "!#", "!#z", "!##x1", "x1", "y2 # #x1", "", "z", "x2", "!#x", "!#x2", "x1#y"]
    assert [text for text in texts if accepts(found, text)] == texts[:6]
