"""Grammars of calls: what templates write for calls is legal, and other names and arguments are not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from edgellm.chat.formats import CALLS
from edgellm.chat.parser import ReplyParser
from edgellm.chat.recognise import recognise
from edgellm.structured import Grammar
from edgellm.toolgrammar import tool_grammar
from edgellm.tools import read_tools
from tests.chat.test_replies_of_templates import ARGUMENTS, TOOLS, WRITE_ONE_CALL, WRITING, call, ours, reply_of
from tests.structured.toy import COMPILER, accepts, draw, legal
from tests.structured.toy import TOOL as TOKEN
from tests.support.replies import SAMPLES

PYTHON_VALUES = ("ByteDance", "openbmb")
"""Their templates write lists as Python does, which models are not made to."""
UNENFORCED = (
    *("muse", "Kimi-K3", "tencent", "GigaChat3-"),
    "CohereForAI-c4ai-command-r-plus",
)
OTHER_SPELLING = ("MiniMax-M1", "Reka", "inclusionai-ling")
"""They write several calls between two marks, escape what is not ASCII, or break lines elsewhere."""
ENFORCED = [path for path in WRITING if not path.stem.startswith(UNENFORCED + PYTHON_VALUES + OTHER_SPELLING)]

GIVEN = read_tools(
    [
        {
            "name": "f",
            "parameters": {
                "type": "object",
                "properties": {"s": {"type": "string"}, "n": {"type": "integer"}, "e": {"enum": ["x", "y"]}},
                "required": ["n"],
                "additionalProperties": False,
            },
        },
        {"name": "g", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}},
    ]
)


class Texts:
    """A tokenizer without control tokens, or with one."""

    def __init__(self, **controls: int) -> None:
        self.controls = controls

    def id_of(self, text: str) -> int | None:
        return self.controls.get(text)

    def is_control(self, token: int) -> bool:
        return True


def grammar(
    format: str,
    choice: str = "auto",
    source: str = "",
    thinks: bool = False,
    tools: Any = GIVEN,
    lead: str = "",
    **controls: int,
) -> Grammar | None:
    return tool_grammar(recognise(source, format), source, tools, choice, thinks, Texts(**controls), lead)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ENFORCED, ids=lambda p: p.stem)
def test_what_a_template_writes_for_a_call_is_legal(path: Path) -> None:
    source = ours(path).source
    format = recognise(source)
    lead = ">>>" if format.name == "functionary-v3.2" else ""
    found = grammar(format.name, "auto", source, tools=read_tools(TOOLS), lead=lead)
    assert found is not None
    calls = [call("one", ARGUMENTS, 1), call("two", {"words": "x"}, 2)]
    calls = calls[:1] if path.stem.startswith(WRITE_ONE_CALL) else calls
    _, reply = reply_of(ours(path), {"role": "assistant", "content": None, "tool_calls": calls})
    if format.name in ("llama", "harmony", "gigachat"):  # they end with the call
        reply = reply[: reply.rindex("}") + 1]
    assert accepts(found, reply)
    assert not accepts(found, reply.replace("one", "uno"))


@pytest.mark.parametrize("path", [p for p in WRITING if p.stem.startswith(UNENFORCED)], ids=lambda p: p.stem)
def test_formats_without_a_grammar_have_none(path: Path) -> None:
    source = ours(path).source
    assert grammar(recognise(source).name, "required", source) is None


CALL = '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>'
F, G = CALL % ("f", '{"s": "a", "n": 1, "e": "x"}'), CALL % ("g", "{}")
ALWAYS_WRONG = [
    CALL % ("h", "{}"),
    CALL % ("f", '{"n": "1"}'),
    CALL % ("f", "{}"),
    CALL % ("f", '{"n": 1, "z": 2}'),
    CALL % ("f", '{"n": 1, "e": "z"}'),
    "<tool_call>no",
]


@pytest.mark.parametrize(
    ("choice", "legal"),
    [
        ("auto", ["", "Hi", "Hi" + F, G, F, G + "\n" + F, G + "Yes" + G]),
        ("required", [G, F, G + "\n" + F]),
        ("f", [F]),
        ("g", [G]),
    ],
)
def test_what_a_choice_allows(choice: str, legal: list[str]) -> None:
    found = grammar("hermes", choice)
    assert found is not None
    texts = ["", "Hi", "Hi" + F, G, F, G + "\n" + F, G + "Yes" + G, *ALWAYS_WRONG]
    assert [text for text in texts if accepts(found, text)] == legal


def test_reasoning_may_come_before_a_call_that_is_demanded() -> None:
    found = grammar("hermes", "g", thinks=True)
    assert found is not None
    assert accepts(found, "<think>\nWell.\n</think>\n\n" + CALL % ("g", "{}"))
    assert not accepts(found, "<think>\nWell.\n</think>\n\nHi")


def test_control_tokens_of_a_call_are_demanded_as_such() -> None:
    found = grammar("mistral", "g", "[ARGS]", **{"[TOOL_CALLS]": TOKEN})
    assert found is not None
    assert f"<[{TOKEN}]>" in found.lark
    assert not accepts(found, "[TOOL_CALLS]g[ARGS]{}")


@pytest.mark.parametrize(
    ("text", "legal"),
    [
        ("", True),
        ("Hi", True),
        (" \n{", True),
        ('{"nam": 1, "name": 2}', True),
        ('Such as {"name": "h"}', True),
        ('[{"name": 1}]', True),
        ('{"name": "f", "parameters": {"s": "a", "n": 1}}', True),
        ('\n { "name" : "g", "parameters": {}}', True),
        ('{"name": "h", "parameters": {}}', False),
        ('{"name": "f", "parameters": {"n": "1"}}', False),
        ('{"name": "f", "parameters": {}}', False),
        ('{"name": "Bob"}', False),
        ('{"name":', False),
        ('{"name": "g", "parameters": {}} Hi', False),
    ],
)
def test_what_begins_like_a_call_of_llama_is_one(text: str, legal: bool) -> None:
    found = grammar("llama")
    assert found is not None
    assert accepts(found, text) == legal
    if legal and "parameters" in text:
        parser = ReplyParser(recognise("", "llama"), schemas={tool.name: tool.parameters for tool in GIVEN})
        parser.feed(text)
        parser.finish()
        assert [made.problem for made in parser.calls] == [None]
        assert not parser.content.strip()


def test_json_behind_a_control_token_of_llama_is_a_call_too() -> None:
    found = grammar("llama", **{"<|python_tag|>": TOKEN})
    assert found is not None
    constraint = COMPILER.compile(found)
    for token in [TOKEN, *b'{"name": "']:
        assert token in legal(constraint)
        constraint.advance(token)
    assert legal(constraint) == [ord("f"), ord("g")]


@pytest.mark.parametrize(
    ("text", "auto", "required"),
    [
        ("", False, False),
        ("all\n", True, False),
        ("all\nHi >>> there >>>h\n", True, False),
        ("Hi", False, False),
        ('f\n{"n": 1}', True, True),
        ('f\n{"n": 1}>>>g\n{}', True, True),
        ('all\nHi>>>f\n{"n": 1}>>>g\n{}', True, False),
        ('f\n{"n": 1}>>>all\nHi', True, False),
        ("h\n{}", False, False),
        ("f\n{}", False, False),
        ("all\nHi>>>f\n{}", False, False),
        ("all\nHi>>>f\n", False, False),
        ('g\n{}>>>f\n{"n": "1"}', False, False),
    ],
)
def test_a_prompt_that_ends_with_the_mark_of_functionary(text: str, auto: bool, required: bool) -> None:
    for choice, expected in (("auto", auto), ("required", required)):
        found = grammar("functionary-v3.2", choice, lead=">>>")
        assert found is not None
        assert accepts(found, text) == expected
    if auto:
        parser = ReplyParser(
            recognise("", "functionary-v3.2"), schemas={t.name: t.parameters for t in GIVEN}, lead=">>>"
        )
        parser.feed(text)
        parser.finish()
        assert [(made.name, made.problem) for made in parser.calls] == [
            (name, None) for name in ("f", "g") if f"{name}\n{{" in text
        ]


TAGGED = "<tool_call>\n<function=f>\n%s</function>\n</tool_call>"


@pytest.mark.parametrize(
    ("parameters", "legal"),
    [
        ("<parameter=n>\n3\n</parameter>\n", True),
        ("<parameter=s>\na <b> </p> </para\n\n</parameter>\n<parameter=n>\n3\n</parameter>\n", True),
        ("<parameter=n>\n3\n</parameter>\n<parameter=e>\nx\n</parameter>\n", True),
        ("", False),
        ("<parameter=n>\nthree\n</parameter>\n", False),
        ("<parameter=n>\n3\n</parameter>\n<parameter=e>\nz\n</parameter>\n", False),
        ("<parameter=q>\n3\n</parameter>\n", False),
    ],
)
def test_values_between_tags(parameters: str, legal: bool) -> None:
    found = grammar("qwen-coder")
    assert found is not None
    assert accepts(found, TAGGED % parameters) == legal


def test_many_parameters_between_tags_are_free_but_the_name_is_not() -> None:
    properties = {f"p{i}": {"type": "integer"} for i in range(9)}
    tools = read_tools([{"name": "f", "parameters": {"type": "object", "properties": properties}}])
    found = grammar("qwen-coder", tools=tools)
    assert found is not None
    assert accepts(found, TAGGED % "<parameter=p3>\nx\n</parameter>\n")
    assert not accepts(found, (TAGGED % "").replace("=f>", "=g>"))


@pytest.mark.parametrize("format", sorted(set(CALLS)))
@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_drawn_from_a_grammar_is_read_as_a_call_that_fits(format: str, seed: int) -> None:
    found = grammar(format, "f")
    if found is None:
        return
    drawn, complete = draw(found, seed, most=3000)
    text = drawn.decode(errors="replace")
    parser = ReplyParser(recognise("", format), schemas={tool.name: tool.parameters for tool in GIVEN})
    parser.feed(text)
    parser.finish()
    if not complete:
        return
    (made,) = parser.calls
    assert made.name == "f"
    assert made.problem is None
    assert type(made.arguments["n"]) is int
    assert made.arguments.keys() <= {"s", "n", "e"}


def test_a_schema_that_cannot_be_enforced_is_an_object_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    tools = read_tools([{"name": "f", "parameters": {"type": "object", "properties": {"a": {"not": {}}}}}])
    found = grammar("hermes", "f", tools=tools)
    assert found is not None
    assert accepts(found, CALL % ("f", '{"a": 1}'))
    assert not accepts(found, CALL % ("f", "3"))
    assert "the tool f" in caplog.text


def test_definitions_are_found_from_within_a_list() -> None:
    tree = {
        "type": "object",
        "properties": {"c": {"type": "array", "items": {"$ref": "#/$defs/T"}}},
        "additionalProperties": False,
    }
    schema = {"type": "object", "properties": {"t": {"$ref": "#/$defs/T"}}, "required": ["t"], "$defs": {"T": tree}}
    found = grammar("mistral", "auto", tools=read_tools([{"name": "f", "parameters": schema}]))
    assert found is not None
    assert accepts(found, '[TOOL_CALLS][{"name": "f", "arguments": {"t": {"c": [{"c": []}]}}}]')
    assert not accepts(found, '[TOOL_CALLS][{"name": "f", "arguments": {"t": {"c": [{"d": []}]}}}]')


def test_the_documentation_lists_the_formats_and_what_is_held_to_a_schema() -> None:
    page = (Path(__file__).parents[1] / "docs" / "tools.md").read_text()
    rows = dict(re.findall(r"^\| `([\w.-]+)` \|.*\| ([\w ,]+) \|$", page, re.MULTILINE))
    assert rows.keys() == CALLS.keys() - {"none"}
    assert {format for format, _, _ in SAMPLES.values()} <= rows.keys()
    sources = {"gigachat": "<|function_call|>"}
    for name, held in rows.items():
        found = [grammar(name, choice, sources.get(name, "")) for choice in ("auto", "f")]
        assert [one is not None for one in found] == [held != "no"] * 2
        if found[1] is not None:
            assert '"integer"' in found[1].lark
