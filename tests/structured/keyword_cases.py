"""What each keyword of JSON Schema that we enforce allows and forbids; docs/structured.md lists the same."""

from __future__ import annotations

import json
from typing import Any

TREE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
            "required": ["v", "next"],
            "additionalProperties": False,
        }
    },
}
OPEN = {"type": "object", "properties": {"a": {"type": "integer"}}}
CLOSED = {**OPEN, "additionalProperties": False}

CASES: list[tuple[str, dict[str, Any], list[Any], list[Any]]] = [
    ("type", {"type": "string"}, ["", "é\n\"\\"], [1, None, ["a"], {}]),
    ("type", {"type": "integer"}, [0, -5, 123456789012345678901234567890], [1.5, "1", True]),
    ("type", {"type": "number"}, [0, -1.5, 2e30], ["1", None]),
    ("type", {"type": "boolean"}, [True, False], [0, "true", None]),
    ("type", {"type": "null"}, [None], [0, "null", False]),
    ("type", {"type": "array"}, [[], [1, "a", [None]]], [{}, "[]"]),
    ("type", {"type": "object"}, [{}, {"a": {"b": 1}}], [[], "{}"]),
    ("type", {"type": ["integer", "null"]}, [1, None], ["", 1.5]),
    ("type", {}, [1, "a", None, [], {}], []),
    ("enum", {"enum": ["a", None, 3, {"b": [1]}]}, ["a", None, 3, {"b": [1]}], ["b", 0, {"b": [2]}]),
    ("enum", {"type": "string", "enum": ["a", 3]}, ["a"], [3, "b"]),
    ("const", {"const": {"a": [1, "x"]}}, [{"a": [1, "x"]}], [{}, {"a": [1]}]),
    ("const", {"const": None}, [None], [0, ""]),
    ("properties", OPEN, [{}, {"a": 1}, {"a": 1, "b": "more"}], [{"a": "x"}]),
    ("properties", {"type": "object", "properties": {}}, [{}, {"a": 1}], [[]]),
    ("additionalProperties", CLOSED, [{}, {"a": 1}], [{"b": 1}, {"a": 1, "b": 1}]),
    ("additionalProperties", {**OPEN, "additionalProperties": {"type": "string"}}, [{"a": 1, "b": "x"}], [{"b": 1}]),
    ("patternProperties",
     {"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False},
     [{}, {"x1": 2}, {"x": 1, "xy": 2}], [{"y": 1}, {"x": "a"}]),
    ("required", {**CLOSED, "required": ["a"]}, [{"a": 1}], [{}]),
    ("required", {"type": "object", "required": ["b"]}, [{"b": []}], [{}, {"a": 1}]),
    ("minProperties", {"type": "object", "minProperties": 1}, [{"a": 1}], [{}]),
    ("maxProperties", {"type": "object", "maxProperties": 1}, [{}, {"a": 1}], [{"a": 1, "b": 2}]),
    ("items", {"type": "array", "items": {"type": "integer"}}, [[], [1, 2]], [["a"], [1, "a"]]),
    ("items", {"type": "array", "prefixItems": [{"type": "integer"}], "items": False}, [[], [1]], [[1, 2], ["a"]]),
    ("prefixItems", {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]},
     [[], [1], [1, "a"], [1, "a", None]], [["a"], [1, 1]]),
    ("minItems", {"type": "array", "minItems": 2, "items": {"type": "integer"}}, [[1, 2], [1, 2, 3]], [[], [1]]),
    ("maxItems", {"type": "array", "maxItems": 2, "items": {"type": "integer"}}, [[], [1, 2]], [[1, 2, 3]]),
    ("minLength", {"type": "string", "minLength": 2}, ["ab", "é\n", "\"\\"], ["", "a"]),
    ("maxLength", {"type": "string", "maxLength": 2}, ["", "ab", "é\n"], ["abc"]),
    ("maxLength", {"type": "string", "maxLength": 2000}, ["", "a" * 2000], ["a" * 2001]),
    ("pattern", {"type": "string", "pattern": "^[a-z]+[0-9]{2}$"}, ["ab12"], ["ab1", "ab123", "12", "1ab12"]),
    ("pattern", {"type": "object", "properties": {"p": {"type": "string", "pattern": "b+"}}, "required": ["p"]},
     [{"p": "b"}, {"p": "abba"}], [{"p": ""}, {"p": "a"}]),
    ("pattern", {"type": "string", "pattern": "^(a|\"\\\\)$"}, ["a", "\"\\"], ["\"", "b"]),
    ("format", {"type": "string", "format": "date-time"}, ["2024-02-29T12:30:00Z"], ["2024-02-29", "x"]),
    ("format", {"type": "string", "format": "date"}, ["2024-02-29"], ["2024-13-01", "24-1-1"]),
    ("format", {"type": "string", "format": "time"}, ["12:30:00Z"], ["25:00:00Z", "noon"]),
    ("format", {"type": "string", "format": "duration"}, ["P1DT2H"], ["1 day"]),
    ("format", {"type": "string", "format": "email"}, ["a.b@example.org"], ["a.b", "@"]),
    ("format", {"type": "string", "format": "hostname"}, ["example.org"], ["-a", "a b"]),
    ("format", {"type": "string", "format": "ipv4"}, ["192.168.0.1"], ["256.1.1.1", "1.2.3"]),
    ("format", {"type": "string", "format": "ipv6"}, ["2001:db8::1"], ["1.2.3.4", "g::"]),
    ("format", {"type": "string", "format": "uuid"}, ["123e4567-e89b-12d3-a456-426614174000"], ["123e4567"]),
    ("format", {"type": "string", "format": "uri"}, ["https://example.org/a?b#c"], ["example org", ""]),
    ("format", {"type": "integer", "format": "int32"}, [1], ["1"]),
    ("minimum", {"type": "integer", "minimum": -5}, [-5, 0, 1000], [-6, -100]),
    ("minimum", {"type": "number", "minimum": 0.5}, [0.5, 1, 20.25], [0, 0.49, -3]),
    ("maximum", {"type": "integer", "maximum": 120}, [120, -7], [121, 1000]),
    ("maximum", {"type": "integer", "minimum": 1, "maximum": 150}, [1, 99, 150], [0, 151, 1500]),
    ("exclusiveMinimum", {"type": "integer", "exclusiveMinimum": 0}, [1, 10], [0, -1]),
    ("exclusiveMaximum", {"type": "number", "exclusiveMaximum": 1}, [0.99, -4], [1, 1.5]),
    ("multipleOf", {"type": "integer", "multipleOf": 7}, [0, 7, -14, 700], [1, 8]),
    ("multipleOf", {"type": "number", "multipleOf": 0.25}, [0.25, -2.75, 3], [0.1, 1.26]),
    ("anyOf", {"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 1}]}, [1, "a"], ["ab", None]),
    ("oneOf", {"oneOf": [{"type": "integer"}, {"type": "string"}]}, [1, "a"], [None, 1.5]),
    ("oneOf", {"oneOf": [{**CLOSED, "required": ["a"]}, {"type": "null"}]}, [{"a": 1}, None], [{}, 1]),
    ("allOf", {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 5}]}, [3, 5], [2, 6]),
    ("allOf", {"allOf": [OPEN, {"type": "object", "required": ["a"]}]}, [{"a": 1}], [{}, {"a": "x"}]),
    ("$ref", TREE, [{"v": 1, "next": None}, {"v": 1, "next": {"v": 2, "next": None}}],
     [{"v": 1}, {"v": 1, "next": {}}]),
    ("$ref", {"$ref": "#/$defs/e", "$defs": {"e": {"enum": ["a", "b"]}}}, ["a", "b"], ["c", None]),
    ("$ref", {"type": "object", "properties": {"a": {"type": "array", "items": {"enum": [1, 2]}},
              "b": {"$ref": "#/properties/a/items"}}, "required": ["b"]},
     [{"b": 1}, {"a": [1, 2], "b": 2}], [{"b": 3}, {"b": [1]}]),
    ("$ref", {"type": "object", "properties": {"sub": {"$ref": "#"}}, "additionalProperties": False},
     [{}, {"sub": {"sub": {}}}], [{"sub": 1}, {"x": 1}]),
    ("$ref", {"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": {"type": "integer"}}}, [3], ["x"]),
    ("$ref", {"$ref": "#/$defs/n", "minimum": 3, "$defs": {"n": {"type": "integer"}}}, [3], [2, "x"]),
]  # fmt: skip
"""Keyword, schema, values that fit it, values that do not."""


def written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
