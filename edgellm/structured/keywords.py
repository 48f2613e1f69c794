"""What each keyword of JSON Schema is to us: where schemas lie within schemas, what is enforced, what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

Path = tuple[str | int, ...]
"""Keys and indices from the root of a schema."""

MAPS = ("properties", "patternProperties")
LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
SINGLE = ("items", "additionalProperties")

ENFORCED = frozenset(
    {
        *MAPS, *LISTS, *SINGLE, "$ref", "type", "const", "enum", "required", "minProperties", "maxProperties",
        "minItems", "maxItems", "minLength", "maxLength", "pattern", "format", "minimum", "maximum",
        "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    }
)  # fmt: skip
"""Keywords that the output obeys."""

REFUSED = frozenset(
    {
        "not", "if", "then", "else", "dependentSchemas", "dependentRequired", "dependencies", "contains", "minContains",
        "maxContains", "uniqueItems", "propertyNames", "unevaluatedItems", "unevaluatedProperties", "additionalItems",
        "$dynamicRef", "$recursiveRef",
    }
)  # fmt: skip
"""Keywords of JSON Schema that demand what cannot be enforced. Any other keyword is an annotation."""

_COUNT = ("a whole number of at least 0", lambda value: isinstance(value, int) and _number(value) and value >= 0)
_NUMBER = ("a number", lambda value: _number(value))
_MAP = ("an object", lambda value: isinstance(value, dict))
_LIST = ("a list that is not empty", lambda value: isinstance(value, list) and value)
_TEXT = ("a text", lambda value: isinstance(value, str))

VALUES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(("minProperties", "maxProperties", "minItems", "maxItems", "minLength", "maxLength"), _COUNT),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), _NUMBER),
    **dict.fromkeys((*MAPS, "$defs", "definitions"), _MAP),
    **dict.fromkeys((*LISTS, "enum"), _LIST),
    **dict.fromkeys(("$ref", "pattern", "format"), _TEXT),
    "items": ("a schema; for one schema per position use prefixItems", lambda value: isinstance(value, dict | bool)),
    "type": ("a text or a list of texts", lambda value: isinstance(value, str) or _texts(value)),
    "required": ("a list of texts", lambda value: _texts(value)),
}
"""What the value of a keyword must be, in words and as a test."""


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"}
)  # fmt: skip
"""Formats that the output obeys."""

REFUSED_FORMATS = frozenset(
    {
        "idn-email", "idn-hostname", "uri-reference", "iri", "iri-reference", "uri-template", "json-pointer",
        "relative-json-pointer", "regex",
    }
)  # fmt: skip
"""Other formats of JSON Schema. One that JSON Schema does not know, such as "int32", demands nothing."""


def subschemas(schema: Any) -> Iterator[tuple[Path, Any]]:
    """The schemas directly within a schema, with their paths from it; definitions are none."""
    if not isinstance(schema, dict):
        return
    for key, value in schema.items():
        if key in MAPS and isinstance(value, dict):
            yield from (((key, name), child) for name, child in value.items())
        elif key in LISTS and isinstance(value, list):
            yield from (((key, index), child) for index, child in enumerate(value))
        elif key in SINGLE:
            yield (key,), value


def target(root: Any, reference: object) -> tuple[Path, Any] | None:
    """The path and the schema that a reference such as ``#/$defs/name`` points to, or None."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    node, path = root, []
    for part in unquote(reference).split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list) and part.isdecimal() and int(part) < len(node):
            key: str | int = int(part)
        elif isinstance(node, dict) and part in node:
            key = part
        else:
            return None
        node = node[key]
        path.append(key)
    return tuple(path), node


def spelled(path: Path) -> str:
    """A path as JSONPath has it: ``$.properties.name``."""
    parts = (f"[{key!r}]" if isinstance(key, int) or not _plain(key) else f".{key}" for key in path)
    return "$" + "".join(parts)


def _plain(key: str) -> bool:
    return key.replace("$", "_").isidentifier()
