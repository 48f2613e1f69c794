"""Schemas are checked before they are compiled: their size, and every keyword by name."""

from __future__ import annotations

import json
from typing import Any

from edgellm.errors import GrammarError
from edgellm.structured.finite import endless
from edgellm.structured.keywords import FORMATS, REFUSED, REFUSED_FORMATS, VALUES, Path, spelled, subschemas, target

MAX_TEXT = 1024 * 1024
MAX_DEPTH = 100
MAX_SCHEMAS = 20_000
MAX_PROPERTIES = 1_000
# The compiler recurses through what schemas contain and refer to, each once: these are the levels of the longest way
# there could be. Twice as many would overflow the compiler's stack.
MAX_LEVELS = 500
# The automaton for multiples of n has n states.
MAX_MULTIPLE = 100_000


def checked(schema: Any) -> Any:
    """A copy of `schema`, as JSON has it, without keywords that demand nothing.

    Raises GrammarError, naming a keyword and its path, for what is not supported or beyond the limits.
    """
    root = _copied(schema)
    queue: list[tuple[Path, Any]] = [((), root)]
    seen: set[int] = {id(root)}
    roots = {id(root): root}  # and what references point to
    nodes: list[tuple[Path, Any]] = []
    while queue:
        path, node = queue.pop()
        nodes.append((path, node))
        if len(nodes) > MAX_SCHEMAS:
            raise GrammarError(f"schema has more than {MAX_SCHEMAS} schemas in it")
        if isinstance(node, bool):
            continue
        if not isinstance(node, dict):
            raise GrammarError(f"schema: {spelled(path)} must be an object or a boolean, not {_short(node)}")
        _check_keywords(node, path)
        inner = [((*path, *way), child) for way, child in subschemas(node)]
        if "$ref" in node:
            found = target(root, node["$ref"])
            if found is None:
                raise GrammarError(
                    f'schema: "$ref" at {spelled(path)} points to {_short(node["$ref"])}, which is not in this schema: '
                    'references are such as "#/$defs/name"'
                )
            roots[id(found[1])] = found[1]
            inner.append(found)
        for way, child in inner:
            if id(child) not in seen or isinstance(child, bool):
                if not isinstance(child, bool):
                    seen.add(id(child))
                queue.append((way, child))
    levels = sum(_height(node) for node in roots.values())
    if levels > MAX_LEVELS:
        raise GrammarError(
            f"schema: its definitions have {levels} levels together, more than the limit of {MAX_LEVELS}: "
            "use fewer or flatter ones"
        )
    path_back = endless(root, nodes)
    if path_back is not None:
        raise GrammarError(f"schema: no text that ends can satisfy it: {spelled(path_back)} requires itself")
    return root


def _copied(schema: Any) -> Any:
    try:
        text = json.dumps(schema, allow_nan=False)
    except RecursionError:
        raise GrammarError(f"schema is nested more than {MAX_DEPTH} levels deep, or contains itself") from None
    except (TypeError, ValueError) as error:
        raise GrammarError(f"schema is not JSON: {error}") from None
    if len(text) > MAX_TEXT:
        raise GrammarError(f"schema has {len(text)} characters, more than the limit of {MAX_TEXT}")
    depth = _depth(text)
    if depth > MAX_DEPTH:
        raise GrammarError(f"schema is nested {depth} levels deep, more than the limit of {MAX_DEPTH}")
    return json.loads(text)


def _depth(text: str) -> int:
    """How deep arrays and objects of a JSON text are nested."""
    depth = deepest = 0
    quoted = escaped = False
    for char in text:
        if quoted:
            quoted = escaped or char != '"'
            escaped = char == "\\" and not escaped
        elif char == '"':
            quoted = True
        elif char in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "]}":
            depth -= 1
    return deepest


def _height(schema: Any) -> int:
    return 1 + max((_height(child) for _, child in subschemas(schema)), default=0)


def _check_keywords(node: dict[str, Any], path: Path) -> None:
    if node.get("uniqueItems") is False:
        del node["uniqueItems"]
    for key in node:
        if key in REFUSED:
            raise GrammarError(f'schema: "{key}" at {spelled(path)} is not supported')
        words, fits = VALUES.get(key, ("", _anything))
        if not fits(node[key]):
            raise GrammarError(f'schema: "{key}" at {spelled(path)} must be {words}, not {_short(node[key])}')
    form = node.get("format", "date")
    if form in REFUSED_FORMATS:
        raise GrammarError(f'schema: "format" at {spelled(path)} is {form!r}, which is not supported')
    if form not in FORMATS:
        del node["format"]
    least = node.get("minProperties", 0)
    # Names outside of "properties" may come twice, and count once.
    if least > max(1, len(node.get("required", []))):
        raise GrammarError(
            f'schema: "minProperties" at {spelled(path)} is {least}: above 1, it is supported only up to the number '
            'of "required" properties'
        )
    multiple = node.get("multipleOf", 1)
    if not 1 / MAX_MULTIPLE <= abs(multiple) <= MAX_MULTIPLE:
        raise GrammarError(
            f'schema: "multipleOf" at {spelled(path)} is {multiple}, outside of the limits of 1/{MAX_MULTIPLE} and '
            f"{MAX_MULTIPLE}"
        )
    properties = node.get("properties", {})
    if len(properties) > MAX_PROPERTIES:
        raise GrammarError(
            f'schema: "properties" at {spelled(path)} has {len(properties)} entries, more than the limit of '
            f"{MAX_PROPERTIES}"
        )


def _anything(value: object) -> bool:
    return True


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
