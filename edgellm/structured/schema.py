"""Schemas, from JSON Schema and from Python types, as grammars."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from edgellm.errors import ArgumentError, GrammarError
from edgellm.structured.check import checked
from edgellm.structured.grammar import HEADER, Grammar, Probe, inline_json, without_place
from edgellm.structured.keywords import Path, spelled, subschemas
from edgellm.structured.types import read_value, type_schema
from edgellm.structured.values import read_json

_MAX_PROBES = 300


def json_grammar() -> Grammar:
    """Any JSON object."""
    return Grammar(f"{HEADER}start: {inline_json({'type': 'object'})}", "json", read_json)


def schema_grammar(schema: Any) -> Grammar:
    """A text in JSON that fits a schema.

    schema: JSON Schema as a mapping or as text, a pydantic model class, or a type: a dataclass, a TypedDict, or an
        annotation such as ``list[int]``. The value of a text is accordingly plain JSON data or an instance.

    Raises GrammarError for what is not supported, by its name and path; ArgumentError for no schema at all.
    """
    if isinstance(schema, str):
        return _grammar(_from_text(schema), read_json)
    if isinstance(schema, Mapping | bool):
        return _grammar(dict(schema) if isinstance(schema, Mapping) else schema, read_json)
    if isinstance(schema, type) and hasattr(schema, "model_json_schema"):
        return _grammar(_closed(schema.model_json_schema()), schema.model_validate_json)  # type: ignore[attr-defined]
    if schema is None or isinstance(schema, list | tuple | int | float | bytes):
        raise ArgumentError(f"schema must be a JSON Schema, a pydantic model or a type, not {schema!r}")
    return _grammar(type_schema(schema), lambda text: read_value(schema, read_json(text)))


def _grammar(schema: Any, value: Any) -> Grammar:
    clean = checked(schema)

    def locate(error: str, probe: Probe) -> str:
        return f" at {spelled(_fault(clean, error, probe))}"

    return Grammar(f"{HEADER}start: {inline_json(clean)}", "schema", value, locate)


def _from_text(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise GrammarError("schema is nested too deeply") from None
    except ValueError as error:
        raise GrammarError(f"schema is not JSON: {error}") from None


def _closed(schema: Any) -> Any:
    """The schema of a pydantic model without the properties it would ignore: they are not worth their tokens."""
    if isinstance(schema, dict):
        if "properties" in schema and isinstance(schema["properties"], dict) and "type" in schema:
            schema.setdefault("additionalProperties", False)
        for definition in (schema.get("$defs") or {}).values():
            _closed(definition)
        for _, child in subschemas(schema):
            _closed(child)
    return schema


def _fault(root: Any, error: str, probe: Probe) -> Path:
    """The path of the innermost schema that gives `error` by itself."""
    definitions = {key: root[key] for key in ("$defs", "definitions") if isinstance(root, dict) and key in root}
    fault = without_place(error)
    path: Path = ()
    node, probes = root, 0
    queue = [(way, child) for key, value in definitions.items() for way, child in _entries(key, value)]
    queue = [*subschemas(node), *queue]
    while queue:
        way, child = queue.pop(0)
        probes += 1
        if probes > _MAX_PROBES or not isinstance(child, dict | bool):
            continue
        alone = {**definitions, **child} if isinstance(child, dict) else child
        if without_place(probe(f"{HEADER}start: {inline_json(alone)}")) == fault:
            path, node = (*path, *way), child
            queue = list(subschemas(node))
    return path


def _entries(key: str, value: Any) -> list[tuple[Path, Any]]:
    return [((key, name), child) for name, child in value.items()] if isinstance(value, dict) else []
