"""Calls in the notations of Python and of Gemma: what fits the schema is legal and read back, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest

from edgellm.chat.parser import ReplyParser
from edgellm.chat.recognise import recognise
from edgellm.structured import Grammar
from edgellm.toolgrammar import tool_grammar
from edgellm.tools import read_tools
from tests.structured.toy import COMPILER, accepts, draw, legal
from tests.structured.toy import TOOL as TOKEN
from tests.test_toolgrammar import Texts

POINT = {
    "type": "object",
    "properties": {"x": {"type": "number"}, "more": {"type": "array", "items": {"$ref": "#/$defs/P"}}},
    "required": ["x"],
    "additionalProperties": False,
}
PROPERTIES = {
    "a": {"type": "string", "minLength": 1},
    "b": {"type": "boolean"},
    "e": {"enum": ["x", "it's", 3, None, True]},
    "i": {"type": "integer", "minimum": 0, "maximum": 12},
    "l": {"type": "array", "items": {"type": ["integer", "null"]}, "minItems": 1, "maxItems": 2},
    "m": {"type": "object", "additionalProperties": {"type": "integer"}},
    "p": {"$ref": "#/$defs/P"},
    "u": {"anyOf": [{"type": "number"}, {"type": "string"}], "description": "d"},
    "z": {},
}
SCHEMA = {"type": "object", "properties": PROPERTIES, "required": ["i"], "$defs": {"P": POINT}}
EMPTY: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
GIVEN = read_tools([{"name": "f", "parameters": SCHEMA}, {"name": "g", "parameters": EMPTY}])

PYTHON = "<|tool_call_start|>[%s]<|tool_call_end|>"
GEMMA_3 = "<start_function_call>call:%s<end_function_call>"
GEMMA_4 = "<|tool_call>call:%s<tool_call|>"
SOURCES = {"lfm2": "", "gemma": "", "gemma 4": "<|tool_call>"}
FRAMES = {"lfm2": PYTHON, "gemma": GEMMA_3, "gemma 4": GEMMA_4}


def grammar(notation: str, choice: str = "auto", tools: Any = GIVEN, **controls: int) -> Grammar:
    source = SOURCES[notation]
    format = recognise(source, notation.split()[0])
    found = tool_grammar(format, source, tools, choice, False, Texts(**controls))  # type: ignore[arg-type]
    assert found is not None
    return found


def read(notation: str, text: str, tools: Any = GIVEN) -> list[tuple[str, Any]]:
    schemas = {tool.name: tool.parameters for tool in tools}
    parser = ReplyParser(recognise(SOURCES[notation], notation.split()[0]), schemas=schemas)
    parser.feed(text)
    parser.finish()
    assert [call.problem for call in parser.calls] == [None] * len(parser.calls)
    return [(call.name, call.arguments) for call in parser.calls]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("i=3", {"i": 3}),
        ("a='it\\'s \"é\"\\n\nx', i=0", {"a": 'it\'s "é"\n\nx', "i": 0}),
        ('a="it\'s", b=True,i=12', {"a": "it's", "b": True, "i": 12}),
        ("b=false, e='x', i=1", {"b": False, "e": "x", "i": 1}),
        ("e='it\\'s', i=1", {"e": "it's", "i": 1}),
        ('e="it\'s", i=1', {"e": "it's", "i": 1}),
        ("e=None, i=1", {"e": None, "i": 1}),
        ("e=3, i=1, l=[1, None]", {"e": 3, "i": 1, "l": [1, None]}),
        ("i=1, m={}", {"i": 1, "m": {}}),
        ("i=1, m={'k': 1, \"j\": 2}", {"i": 1, "m": {"k": 1, "j": 2}}),
        ("i=1, p={'x': 1.5, 'more': [{'x': -2}]}", {"i": 1, "p": {"x": 1.5, "more": [{"x": -2}]}}),
        ("i=1, u=2.5", {"i": 1, "u": 2.5}),
        ("i=1, u='', z=[{'k': [True, null]}, 'b']", {"i": 1, "u": "", "z": [{"k": [True, None]}, "b"]}),
    ],
)
def test_python_that_fits_is_legal_and_read(written: str, meant: dict[str, Any]) -> None:
    text = PYTHON % f"f({written})"
    assert accepts(grammar("lfm2"), text)
    assert read("lfm2", text) == [("f", meant)]


@pytest.mark.parametrize(
    "written",
    [
        *("", "i=13", "i=-1", "i='3'", "i=1.5", "i=1, q=2", "i=1, i=2", "i", "3", "i=1,"),
        *("a=3, i=1", "a=b, i=1", "a='x, i=1", "a='\\ud800', i=1", "a='<|tool_call_end|>', i=1"),
        *("b=1, i=1", "e='y', i=1", "i=1, l=[]", "i=1, l=[1, 2, 3]", "i=1, l=['1']", "i=1, m={'k': 'v'}"),
        *("i=1, p={}", "i=1, p={'x': 1, 'y': 2}", "i=1, p={'x': 1, 'more': [{}]}", "i=1, u=True", "i=1, u=[]"),
    ],
)
def test_python_that_does_not_fit_is_not_legal(written: str) -> None:
    assert not accepts(grammar("lfm2"), PYTHON % f"f({written})")


def test_a_list_in_python_may_have_several_calls_of_the_tools_there_are() -> None:
    found = grammar("lfm2")
    text = PYTHON % "g(), f(i=2), g()"
    assert accepts(found, text)
    assert read("lfm2", text) == [("g", {}), ("f", {"i": 2}), ("g", {})]
    for wrong in ("", "h()", "g(), h()", "g(a=1)", "g() g()"):
        assert not accepts(found, PYTHON % wrong)
    assert accepts(grammar("lfm2", "f"), PYTHON % "f(i=2)")
    assert not accepts(grammar("lfm2", "f"), PYTHON % "f(i=2), f(i=2)")
    assert accepts(found, "Hi " + text + " there")


@pytest.mark.parametrize("notation", ["gemma", "gemma 4"])
@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("i:3", {"i": 3}),
        ("a:'a, {b}: \"c\"\n<e <esc',i:0", {"a": 'a, {b}: "c"\n<e <esc', "i": 0}),
        ("a:'',b:true,i:12", {"a": "", "b": True, "i": 12}),
        ("e:'x',i:1", {"e": "x", "i": 1}),
        ("e:null,i:1", {"e": None, "i": 1}),
        ("e:3,i:1,l:[1,null]", {"e": 3, "i": 1, "l": [1, None]}),
        ("i:1,m:{}", {"i": 1, "m": {}}),
        ("i:1,m:{k:1,j:2}", {"i": 1, "m": {"k": 1, "j": 2}}),
        ("i:1,p:{more:[{x:-2}],x:1.5}", {"i": 1, "p": {"x": 1.5, "more": [{"x": -2}]}}),
        ("i:1,u:2.5", {"i": 1, "u": 2.5}),
        ("i:1,u:'2.5',z:[{k:[true,null]},'b']", {"i": 1, "u": "2.5", "z": [{"k": [True, None]}, "b"]}),
    ],
)
def test_what_fits_is_legal_and_read_in_the_notation_of_gemma(
    notation: str, written: str, meant: dict[str, Any]
) -> None:
    text = FRAMES[notation] % f"f{{{quoted(notation, written)}}}"
    assert accepts(grammar(notation), text)
    assert read(notation, text) == [("f", meant)]


@pytest.mark.parametrize("notation", ["gemma", "gemma 4"])
@pytest.mark.parametrize(
    "written",
    [
        *("", "i:13", "i:-1", "i:'3'", "i:1.5", "i:x", "i:1,q:2", "i:1,i:2", "i", "i:1,"),
        *("a:3,i:1", "a:b,i:1", "a:'x,i:1", "a:'<end_function_call><tool_call|>',i:1", "a:'b'c',i:1"),
        *("b:1,i:1", "e:'y',i:1", "e:y,i:1", "i:1,l:[]", "i:1,l:[1,2,3]", "i:1,l:['1']", "i:1,m:{k:'v'}"),
        *("i:1,p:{}", "i:1,p:{x:1,y:2}", "i:1,p:{more:[{}],x:1}", "i:1,u:true", "i:1,u:[]"),
    ],
)
def test_what_does_not_fit_is_not_legal_in_the_notation_of_gemma(notation: str, written: str) -> None:
    assert not accepts(grammar(notation), FRAMES[notation] % f"f{{{quoted(notation, written)}}}")


def quoted(notation: str, written: str) -> str:
    return written.replace("'", "<escape>" if notation == "gemma" else '<|"|>')


def test_marks_of_texts_are_tokens_where_a_model_has_them() -> None:
    found = grammar("gemma 4", "f", **{'<|"|>': TOKEN})
    constraint = COMPILER.compile(found)
    for token in [*b"<|tool_call>call:f{a:", TOKEN, *b'x <|"|', TOKEN, *b",i:1}<tool_call|>"]:
        assert token in legal(constraint)
        constraint.advance(token)
    assert constraint.complete
    assert not accepts(found, GEMMA_4 % 'f{a:<|"|>x<|"|>,i:1}')


@pytest.mark.parametrize("notation", sorted(SOURCES))
@pytest.mark.parametrize("seed", range(8))
def test_what_is_drawn_is_read_as_a_call_that_fits(notation: str, seed: int) -> None:
    drawn, complete = draw(grammar(notation, "f"), seed, most=4000)
    if complete:
        ((name, arguments),) = read(notation, drawn.decode(errors="replace"))
        assert name == "f"
        assert 0 <= arguments["i"] <= 12
        assert arguments.keys() <= PROPERTIES.keys()
        assert all(type(value) is int for value in arguments.get("m", {}).values())


@pytest.mark.parametrize("notation", sorted(SOURCES))
def test_a_schema_beyond_a_notation_leaves_the_name(notation: str, caplog: pytest.LogCaptureFixture) -> None:
    odd = {"type": "object", "properties": {"a": {"allOf": [{"type": "integer"}]}}}
    tools = read_tools([{"name": "f", "parameters": odd}, {"name": "g", "parameters": EMPTY}])
    found = grammar(notation, tools=tools)
    assert "'allOf'" in caplog.text
    call = "f(a=1)" if notation == "lfm2" else "f{a:1}"
    assert accepts(found, FRAMES[notation] % call)
    assert not accepts(found, FRAMES[notation] % call.replace("f", "h"))
    assert not accepts(found, FRAMES[notation] % call.replace("f", "g"))
    if notation == "lfm2":
        assert accepts(found, PYTHON % "g(), f(a=1), g()")


def test_a_parameter_that_is_no_name_in_python_leaves_the_name_of_the_tool() -> None:
    schema = {"type": "object", "properties": {"from": {"type": "integer"}}}
    found = grammar("lfm2", tools=read_tools([{"name": "f", "parameters": schema}]))
    assert accepts(found, PYTHON % "f(**{'from': 1})")
    assert not accepts(found, PYTHON % "g()")
