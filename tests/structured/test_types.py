"""Python types as schemas, and values of these types from the text."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict, Union

import jsonschema
import pydantic
import pytest

from edgellm.errors import GrammarError
from edgellm.structured.schema import schema_grammar
from edgellm.structured.types import read_value, type_schema
from tests.structured.toy import COMPILER, accepts


class Mood(enum.Enum):
    GOOD = "good"
    BAD = 3


@dataclass
class Point:
    x: float
    y: float = 0.0


@dataclass
class Tree:
    name: str
    children: list[Tree] = field(default_factory=list)
    mark: Point | None = None
    made: str = field(default="here", init=False)


class Row(TypedDict):
    key: str
    mood: NotRequired[Mood]


VALUES: list[tuple[Any, str, Any]] = [
    (str, '"a"', "a"),
    (int, "3", 3),
    (float, "3", 3.0),
    (bool, "true", True),
    (None, "null", None),
    (Any, '{"a": [1]}', {"a": [1]}),
    (Literal["a", 1, None], "null", None),
    (Literal["a", 1, True], "true", True),
    (Mood, "3", Mood.BAD),
    (Optional[int], "null", None),  # noqa: UP045
    (Union[int, str], '"x"', "x"),  # noqa: UP007
    (int | list[float], "[1]", [1.0]),
    (list, '[1, "a"]', [1, "a"]),
    (list[Mood], '["good", 3]', [Mood.GOOD, Mood.BAD]),
    (tuple[int, str], '[1, "a"]', (1, "a")),
    (tuple[int, ...], "[1, 2]", (1, 2)),
    (dict[str, Point], '{"a": {"x": 1}}', {"a": Point(1.0)}),
    (dict, '{"a": 1}', {"a": 1}),
    (Annotated[int, "a note"], "4", 4),
    (Point, '{"x": 1, "y": 2.5}', Point(1.0, 2.5)),
    (Row, '{"key": "a"}', {"key": "a"}),
    (Row, '{"key": "a", "mood": 3}', {"key": "a", "mood": Mood.BAD}),
    (
        Tree,
        '{"name": "a", "children": [{"name": "b", "mark": null}], "mark": {"x": 1, "y": 2}}',
        Tree("a", [Tree("b")], Point(1.0, 2.0)),
    ),
    (Point | Tree, '{"name": "a"}', Tree("a")),
]


@pytest.mark.parametrize(("kind", "text", "value"), VALUES, ids=[str(kind)[:40] for kind, _, _ in VALUES])
def test_a_text_of_a_type_becomes_its_value(kind, text, value):
    grammar = schema_grammar(kind) if kind is not None else schema_grammar(type(None))
    assert accepts(grammar, text)
    found = grammar.value(text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Point, "{}"),
        (Point, '{"x": 1, "z": 2}'),
        (Point, '{"x": "1"}'),
        (Tree, '{"name": "a", "made": "b"}'),
        (Row, '{"mood": "good"}'),
        (Mood, '"none"'),
        (tuple[int, str], "[1]"),
        (tuple[int, str], '[1, "a", 2]'),
        (int, "1.5"),
        (int, "true"),
        (Literal[1], "true"),
        (dict[str, int], '{"a": "b"}'),
    ],
)
def test_what_is_not_of_the_type_is_not_legal_and_has_no_value(kind, text):
    grammar = schema_grammar(kind)
    assert not accepts(grammar, text)
    with pytest.raises(ValueError):
        grammar.value(text)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (set[int], r"set\[int\] is of type set\[int\], which has no JSON form"),
        (dict[int, str], "keys of type int, JSON has text only"),
        (bytes, "bytes"),
        (complex, "complex"),
        (list[complex], r"\[…\] is of type complex"),
        (lambda: 1, "no JSON form"),
    ],
)
def test_a_type_without_a_json_form_is_named(kind, message):
    with pytest.raises(GrammarError, match=message):
        schema_grammar(kind)


def test_the_place_of_such_a_type_is_named():
    @dataclass
    class Bad:
        good: int
        items: list[complex]

    with pytest.raises(GrammarError, match=r"Bad\.items\[…\] is of type complex"):
        type_schema(Bad)


def test_an_annotation_that_means_nothing_is_a_grammar_error():
    @dataclass
    class Lost:
        value: Nowhere  # noqa: F821

    with pytest.raises(GrammarError, match=r"annotations of .*Lost.* cannot be resolved.*Nowhere"):
        type_schema(Lost)


def test_types_of_the_same_name_are_kept_apart():
    def make(kind: Any) -> Any:
        @dataclass
        class Same:
            value: kind

        Same.__annotations__["value"] = kind
        return Same

    one, other = make(int), make(str)
    grammar = schema_grammar(tuple[one, other])
    assert accepts(grammar, '[{"value": 1}, {"value": "a"}]')
    assert grammar.value('[{"value": 1}, {"value": "a"}]') == (one(1), other("a"))


@pytest.mark.parametrize("kind", [kind for kind, _, _ in VALUES if kind is not None])
def test_schemas_of_types_are_valid(kind):
    jsonschema.Draft202012Validator.check_schema(type_schema(kind))


class Address(pydantic.BaseModel):
    street: str
    number: int = pydantic.Field(ge=1, le=999)


class Customer(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=5)
    home: Address
    mood: Literal["good", "bad"] = "good"
    others: list[Address] = []
    note: str | None = None


class Flexible(pydantic.BaseModel, extra="allow"):
    a: int


def test_a_pydantic_model_is_a_schema_and_its_instances_are_the_values():
    grammar = schema_grammar(Customer)
    text = '{"name": "Ann", "home": {"street": "A", "number": 7}, "mood": "bad"}'
    assert accepts(grammar, text)
    assert grammar.value(text) == Customer(name="Ann", home=Address(street="A", number=7), mood="bad")
    for bad in (text.replace("7", "1000"), text.replace("Ann", "Annabel"), text.replace('"mood"', '"food"')):
        assert not accepts(grammar, bad)


def test_properties_that_a_pydantic_model_would_ignore_are_not_written():
    assert not accepts(schema_grammar(Customer), '{"name": "A", "home": {"street": "A", "number": 7}, "x": 1}')
    assert not accepts(schema_grammar(Customer), '{"name": "A", "home": {"street": "A", "number": 7, "x": 1}}')
    assert accepts(schema_grammar(Flexible), '{"a": 1, "x": 1}')


def test_a_pydantic_model_that_cannot_be_enforced_is_refused():
    class Unique(pydantic.BaseModel):
        tags: set[str]

    with pytest.raises(GrammarError, match=r'"uniqueItems" at \$\.properties\.tags'):
        schema_grammar(Unique)


def test_a_value_that_only_pydantic_can_refuse_is_a_value_error():
    class Picky(pydantic.BaseModel):
        a: int

        @pydantic.field_validator("a")
        @classmethod
        def _even(cls, value: int) -> int:
            if value % 2:
                raise ValueError("odd")
            return value

    COMPILER.compile(schema_grammar(Picky))
    with pytest.raises(ValueError, match="odd"):
        schema_grammar(Picky).value('{"a": 3}')


def test_unions_take_the_first_type_that_fits():
    assert read_value(int | float, 3) == 3
    assert type(read_value(float | int, 3)) is float
    with pytest.raises(ValueError, match="is none of int, str"):
        read_value(int | str, [])
