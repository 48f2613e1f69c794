"""Tools: what functions and schemas become, and how functions are called."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypedDict

import pydantic
import pytest

from edgellm.errors import ArgumentError
from edgellm.tools import Tool, chosen, read_tools, result_text


class Unit(enum.Enum):
    C = "celsius"
    F = "fahrenheit"


@dataclass
class Place:
    town: str
    country: str = "NO"


class Options(TypedDict, total=False):
    fast: bool


@dataclass
class Tree:
    name: str
    children: list[Tree] = field(default_factory=list)


class Person(pydantic.BaseModel):
    name: str
    age: int = pydantic.Field(ge=0, description="In years.")


def one(tool: Any) -> Tool:
    (found,) = read_tools([tool])
    return found


def weather(
    place: Annotated[str, "A town."], unit: Unit = Unit.C, days: int = 1, sky: Literal["clear", "any"] = "any"
) -> str:
    """Tell the weather.

    It may be wrong.

    Args:
        unit: of the temperature,
            as you like.
        days (int): how many.

    Returns:
        Words.
    """
    return f"{place} {unit!r} {days} {sky}"


def test_a_function_becomes_a_schema():
    tool = one(weather)
    assert tool.schema == {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Tell the weather.\n\nIt may be wrong.",
            "parameters": {
                "type": "object",
                "properties": {
                    "place": {"type": "string", "description": "A town."},
                    "unit": {"enum": ["celsius", "fahrenheit"], "description": "of the temperature, as you like."},
                    "days": {"type": "integer", "description": "how many."},
                    "sky": {"enum": ["clear", "any"]},
                },
                "required": ["place"],
                "additionalProperties": False,
            },
        },
    }


def test_it_is_called_with_values_of_its_types():
    assert one(weather).call({"place": "Oslo", "unit": "fahrenheit"}) == "Oslo <Unit.F: 'fahrenheit'> 1 any"
    for wrong in ({}, {"place": 3}, {"place": "x", "days": "2"}, {"place": "x", "unit": "K"}, {"place": "x", "no": 1}):
        with pytest.raises(ValueError):
            one(weather).call(wrong)


def collect(
    places: list[Place], options: Options | None = None, extra: dict[str, float] | None = None, *, anything: Any = 0
) -> tuple[Any, ...]:
    """Collect.

    :param places: where
    :param dict extra: more
    """
    return places, options, extra, anything


def test_types_within_types_stand_in_their_place():
    tool = one(collect)
    place = {
        "type": "object",
        "properties": {"town": {"type": "string"}, "country": {"type": "string"}},
        "required": ["town"],
        "additionalProperties": False,
    }
    assert tool.parameters["properties"]["places"] == {"type": "array", "items": place, "description": "where"}
    assert tool.parameters["properties"]["extra"]["description"] == "more"
    assert tool.parameters["properties"]["anything"] == {}
    assert "$defs" not in tool.parameters
    assert tool.description == "Collect."
    made = tool.call({"places": [{"town": "Oslo"}], "options": {"fast": True}, "extra": {"a": 1}})
    assert made == ([Place("Oslo")], {"fast": True}, {"a": 1.0}, 0)


def walk(tree: Tree) -> str:
    return tree.children[0].name


def test_a_type_of_itself_keeps_its_definition():
    tool = one(walk)
    assert list(tool.parameters["$defs"])[:1] != []
    assert json.dumps(tool.parameters)
    assert tool.call({"tree": {"name": "a", "children": [{"name": "b"}]}}) == "b"


def greet(person: Person, times: int = 1) -> str:
    return f"Hello {person.name}" * times


def test_pydantic_models():
    tool = one(greet)
    person = tool.parameters["properties"]["person"]
    assert person["properties"]["age"] == {"description": "In years.", "minimum": 0, "type": "integer"}
    assert "$ref" not in json.dumps(tool.parameters)
    assert tool.parameters["required"] == ["person"]
    assert tool.call({"person": {"name": "Ada", "age": 3}, "times": 2}) == "Hello AdaHello Ada"
    with pytest.raises(ValueError):
        tool.call({"person": {"name": "Ada", "age": -1}})


class Counter:
    def __init__(self) -> None:
        self.n = 0

    def add(self, n: int) -> int:
        """Add."""
        self.n += n
        return self.n


def test_methods_and_functions_without_annotations():
    counter = Counter()
    tool = one(counter.add)
    assert list(tool.parameters["properties"]) == ["n"]
    assert (tool.call({"n": 2}), counter.n) == (2, 2)

    def bare(x, y=1):
        return x, y

    assert one(bare).parameters["properties"] == {"x": {}, "y": {}}
    assert one(bare).call({"x": [1]}) == ([1], 1)


def everything(*args: int) -> None: ...
def first(x: int, /) -> None: ...
def strange(x: complex) -> None: ...
def unknown(x: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ([everything], r"everything has a parameter \*args"),
        ([first], "first has a parameter x"),
        ([strange], "strange.*complex"),
        ([unknown], "unknown.*Nowhere"),
        ([lambda x: x], "needs a name"),
        ([weather, weather], "two with the name 'weather'"),
        ([Counter], "functions and JSON schemas"),
        ([3], "functions and JSON schemas"),
        (weather, "must be a list"),
        ("weather", "must be a list"),
        ([{"function": {}}], "needs a name"),
        ([{"name": "a b"}], "needs a name"),
        ([{"name": "f", "parameters": []}], "parameters of 'f'"),
    ],
)
def test_what_is_no_tool_is_refused(tools, words):
    with pytest.raises(ArgumentError, match=words):
        read_tools(tools)


def test_schemas_come_in_both_forms():
    flat = one({"name": "f", "description": "Do.", "parameters": {"type": "object"}})
    whole = one({"type": "function", "function": {"name": "f", "description": "Do.", "parameters": {"type": "object"}}})
    assert flat == whole
    assert flat.function is None
    assert one({"name": "mcp/x.y-z"}).parameters == {"type": "object", "properties": {}}
    assert read_tools(None) == read_tools([]) == ()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("wörds", "wörds"),
        ({"a": [1, None]}, '{"a": [1, null]}'),
        (Place("Oslo"), '{"town": "Oslo", "country": "NO"}'),
        (Person(name="Ada", age=3), '{"name":"Ada","age":3}'),
        (None, "null"),
        ("é", "é"),
        ({1, 2}, '"{1, 2}"'),
    ],
)
def test_results_are_text_or_json(value, text):
    assert result_text(value) == text


TOOLS = read_tools([weather, {"name": "g"}])


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, "auto"),
        ("auto", "auto"),
        ("required", "required"),
        ("none", "none"),
        ("g", "g"),
        ({"type": "function", "function": {"name": "g"}}, "g"),
    ],
)
def test_choices(choice, expected):
    assert chosen(choice, TOOLS) == expected


@pytest.mark.parametrize(("choice", "tools"), [("h", TOOLS), (3, TOOLS), ({}, TOOLS), ("required", ()), ("g", ())])
def test_other_choices_are_refused(choice: Any, tools: tuple[Tool, ...]):
    with pytest.raises(ArgumentError, match="tool_choice"):
        chosen(choice, tools)
