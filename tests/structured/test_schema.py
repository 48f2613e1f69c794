"""JSON Schema: what is enforced, what is refused by name, and how large a schema may be."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from edgellm.errors import ArgumentError, GrammarError
from edgellm.structured.keywords import ENFORCED, FORMATS, REFUSED, REFUSED_FORMATS
from edgellm.structured.schema import json_grammar, schema_grammar
from tests.structured.keyword_cases import CASES, written
from tests.structured.toy import COMPILER, END, accepts, draw, legal

DOCS = Path(__file__).parents[2] / "docs" / "structured.md"


@pytest.mark.parametrize(("keyword", "schema", "good", "bad"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_a_keyword_allows_what_fits_and_nothing_else(keyword, schema, good, bad):
    assert keyword == "type" or f'"{keyword}"' in json.dumps(schema)
    validator = jsonschema.Draft202012Validator(schema)
    formats = "format" in schema
    assert all(validator.is_valid(value) for value in good)
    assert formats or not any(validator.is_valid(value) for value in bad)
    grammar = schema_grammar(schema)
    assert [value for value in good if not accepts(grammar, written(value))] == []
    assert [value for value in bad if accepts(grammar, written(value))] == []


def test_every_enforced_keyword_and_format_has_a_case():
    assert {case[0] for case in CASES} == ENFORCED
    assert {case[1].get("format") for case in CASES} >= FORMATS


def table_rows(heading: str) -> set[str]:
    """The first cells of the table below a heading of the documentation, without backquotes."""
    lines = DOCS.read_text().split(f"## {heading}\n")[1].split("\n## ")[0].splitlines()
    return {line.split("|")[1].strip().strip("`") for line in lines if line.startswith("| `")}


def test_the_documentation_lists_the_keywords_that_the_cases_show():
    assert table_rows("Keywords of JSON Schema") == ENFORCED
    text = DOCS.read_text()
    assert [name for name in (*REFUSED, *REFUSED_FORMATS, *FORMATS) if f"`{name}`" not in text] == []


@pytest.mark.parametrize("keyword", sorted(REFUSED))
def test_a_keyword_that_cannot_be_enforced_is_refused_by_name_and_path(keyword):
    schema = {"type": "object", "properties": {"list": {"type": "array", "items": {keyword: {"type": "integer"}}}}}
    message = rf'"{keyword}" at \$\.properties\.list\.items is not supported'.replace("$d", r"\$d").replace(
        "$r", r"\$r"
    )
    with pytest.raises(GrammarError, match=message):
        schema_grammar(schema)


def test_a_refused_keyword_in_a_definition_counts_where_it_is_used():
    bad = {"$defs": {"x y": {"anyOf": [{"not": {}}]}}}
    with pytest.raises(GrammarError, match=r"\"not\" at \$\.\$defs\['x y'\]\.anyOf\[0\]"):
        schema_grammar({**bad, "properties": {"a": {"$ref": "#/$defs/x%20y"}}})
    schema_grammar({**bad, "type": "integer"})


def test_names_that_are_no_keywords_demand_nothing():
    grammar = schema_grammar({
        "$schema": "https://json-schema.org/draft/2020-12/schema", "title": "T", "description": "not",
        "default": {"not": 1}, "examples": [{"if": 1}], "x-order": 3, "type": "object", "uniqueItems": False,
        "properties": {"not": {"type": "integer", "format": "int64"}, "if": {"const": {"not": 1}}},
        "required": ["not", "if"], "additionalProperties": False,
    })  # fmt: skip
    assert accepts(grammar, '{"not": 1, "if": {"not": 1}}')
    assert not accepts(grammar, '{"not": 1}')


OBJECT = {"type": "object"}
MUTUAL = {"anyOf": [{"$ref": "#/$defs/m"}, {"allOf": [{}, {"$ref": "#/$defs/m"}]}]}
BACK = {"type": "array", "minItems": 2, "prefixItems": [True], "items": {"$ref": "#/$defs/n"}}


@pytest.mark.parametrize("schema", [
    {**OBJECT, "properties": {"a": {"$ref": "#"}}},
    {"properties": {"a": {"$ref": "#"}}, "required": ["a"]},
    {"type": ["object", "null"], "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
    {"type": "array", "items": {"$ref": "#"}},
    {**OBJECT, "properties": {"a": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["a"]},
    {"type": "array", "minItems": 1, "prefixItems": [{}], "items": {"$ref": "#"}},
])  # fmt: skip
def test_a_schema_may_contain_itself_where_it_can_end(schema):
    COMPILER.compile(schema_grammar(schema))


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"properties": {"x": {"items": {"type": "foo"}}}}, r"schema at \$\.properties\.x\.items: .*foo"),
        ({"properties": {"x": {"pattern": "(?=a)b"}}}, r"schema at \$\.properties\.x: .*\n.*\n.*\n.*look-ahead"),
        (
            {"type": "object", "properties": {"x": {"type": "integer", "minimum": 5, "maximum": 3}}, "required": ["x"]},
            r"schema at \$: .*'x' is unsatisfiable",
        ),
        ({"items": {"oneOf": [{"type": "integer"}, {"type": "number"}]}}, r"schema at \$\.items: .*oneOf"),
        ({"$defs": {"a": {"type": "foo"}}, "properties": {"x": {"$ref": "#/$defs/a"}}}, r"foo"),
        ({"$ref": "#/$defs/x"}, r'"\$ref" at \$ points to .#/\$defs/x., which is not in this schema'),
        ({"$ref": "https://example.org/x"}, r'"\$ref" at \$ points to .https'),
        ({"items": {"$ref": "#/items/0"}}, r'"\$ref" at \$\.items points'),
        ({"format": "iri"}, r'"format" at \$ is .iri., which is not supported'),
        ({"minProperties": 2}, r'"minProperties" at \$ is 2'),
        ({"multipleOf": 1e9}, r'"multipleOf" at \$ is 1000000000'),
        ({"multipleOf": 0}, r'"multipleOf" at \$ is 0'),
        ({"minimum": 1, "exclusiveMinimum": True}, r'"exclusiveMinimum" at \$ must be a number, not True'),
        ({"items": [{"type": "integer"}]}, r'"items" at \$ must be a schema'),
        ({"required": "a"}, r'"required" at \$ must be a list of texts'),
        ({"properties": ["a"]}, r'"properties" at \$ must be an object'),
        ({"properties": {"a": 5}}, r"\$\.properties\.a must be an object or a boolean, not 5"),
        ({"maxLength": -1}, r'"maxLength" at \$ must be a whole number of at least 0'),
        ({"enum": []}, r'"enum" at \$ must be a list that is not empty'),
        ({"enum": "a"}, r'"enum" at \$ must be a list'),
        ({"$ref": "#"}, r"no text that ends .* \$ requires itself"),
        ({**OBJECT, "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, r"no text that ends .* \$ requires itself"),
        ({**OBJECT, "properties": {"a": {"$ref": "#/$defs/n"}}, "required": ["a"], "$defs": {"n": MUTUAL, "m": BACK}},
         r"no text that ends .* \$\.\$defs\.n requires itself"),
        (False, r"schema"),
        ({"type": "object", "required": ["a"], "additionalProperties": False}, r"required property 'a'"),
        ({"const": "\ud800"}, r"schema at \$"),
        ({"properties": {"\ud800": {}}}, r"schema at \$"),
        ({"const": float("nan")}, r"not JSON"),
        ({"const": {1, 2}}, r"not JSON"),
        ("{", r"schema is not JSON"),
    ],
)  # fmt: skip
def test_faults_are_named_with_their_path(schema: Any, message: str):
    with pytest.raises(GrammarError, match=message):
        COMPILER.compile(schema_grammar(schema))


@pytest.mark.parametrize("schema", [5, [{}], b"{}", 1.5])
def test_what_is_no_schema_is_an_argument_error(schema):
    with pytest.raises(ArgumentError, match="schema must be"):
        schema_grammar(schema)


def nested(n: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(n):
        schema = {"properties": {"a": schema}}
    return schema


def chained(n: int) -> dict[str, Any]:
    links = {f"d{i}": {"properties": {"next": {"$ref": f"#/$defs/d{i + 1}"}}} for i in range(n)}
    return {"$ref": "#/$defs/d0", "$defs": {**links, f"d{n}": {}}}


def linked(n: int) -> dict[str, Any]:
    """As `chained`, by references to what is there anyway."""
    links = {f"d{i}": {"properties": {"next": {"$ref": f"#/properties/d{i + 1}"}}} for i in range(n)}
    return {"properties": {**links, f"d{n}": {}}}


@pytest.mark.parametrize(
    "schema",
    [
        nested(200),
        '{"items":' * 60_000 + "{}" + "}" * 60_000,
        "[" * 60_000,
        chained(400),
        chained(5_000),
        linked(900),
        {"properties": {f"p{i}": {} for i in range(5_000)}},
        {"anyOf": [{"const": i} for i in range(30_000)]},
        {"const": "x" * 2_000_000},
        {"type": "integer", "multipleOf": 1_000_003},
        {"allOf": [{"anyOf": [{"properties": {f"p{i}{j}": {}}} for j in range(6)]} for i in range(12)]},
        {"type": "integer", "minimum": -(2**80), "maximum": 2**80},
    ],
    ids=lambda schema: str(schema)[:20],
)  # fmt: skip
def test_what_is_too_large_is_refused_fast(schema):
    began = time.perf_counter()
    with pytest.raises(GrammarError):
        COMPILER.compile(schema_grammar(schema))
    assert time.perf_counter() - began < 30


def test_a_schema_that_contains_itself_is_refused():
    loop: dict[str, Any] = {}
    loop["items"] = loop
    with pytest.raises(GrammarError):
        schema_grammar(loop)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "minLength": 1_000_000},
        {"type": "array", "minItems": 1_000_000, "items": {"type": "array", "minItems": 100_000}},
        {"type": "string", "pattern": "(x{1,1000}y){1,1000}"},
        chained(200),
        {"properties": {f"p{i}": {"type": "integer"} for i in range(1_000)}, "type": "object"},
        {"enum": [f"value {i}" for i in range(10_000)]},
    ],
    ids=["length", "items", "pattern", "chain", "wide", "enum"],
)
def test_what_is_large_but_not_too_large_works(schema):
    assert draw(schema_grammar(schema), 1, 20)[0]


@pytest.mark.parametrize(
    "grammar", [json_grammar(), schema_grammar({"type": "array", "items": {}})], ids=["json", "list"]
)
def test_white_space_is_bounded(grammar):
    """Whoever always prefers a space or a line end still gets on, and after the end there is none."""
    for favourites in (b" \n\t", b"\t\n ", b"\n \t"):
        constraint, text, run = COMPILER.compile(grammar), b"", 0
        while not constraint.finished:
            allowed = legal(constraint)
            token = next((t for t in (*favourites, *b'}]":', END) if t in allowed), allowed[0])
            assert token != END
            run = run + 1 if token in favourites else 0
            assert run <= 21
            constraint.advance(token)
            text += bytes([token])
        assert json.loads(text) in ({}, [])
        assert text.strip() == text


def test_white_space_that_models_like_is_legal():
    grammar = schema_grammar({"type": "object"})
    for text in (
        '{"a":[1,2]}',
        '{"a": [1, 2]}',
        '{\n  "a": [\n    1,\n    2\n  ]\n}',
        '{ "a" : 1 }',
        '{\n\t"a": 1\n}',
    ):
        assert accepts(grammar, text)
    for text in (' {"a":1}', '{"a":  1}', '{"a":1} ', '{\n\n"a":1}'):
        assert not accepts(grammar, text)


def test_json_is_any_object():
    assert accepts(json_grammar(), '{"a": [null, {"b": "é\\n"}]}')
    assert not accepts(json_grammar(), "[]")
    assert json_grammar().value('{"a": 1}') == {"a": 1}
