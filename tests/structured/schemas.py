"""A family of schemas for hypothesis: everything we enforce, nested and combined."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Schema = dict[str, Any]

_NAMES = st.sampled_from(["a", "b", "name", 'ä"\\', "x1", "x2"])
_SMALL = st.integers(0, 3)
_VALUES = st.sampled_from([None, True, 0, -7, 1.5, "", "text", 'é"\\\n', [1, []], {"k": None}])


@st.composite
def bounded(draw: st.DrawFn, kind: str, low: str, high: str, numbers: st.SearchStrategy[Any], **more: Any) -> Schema:
    least, most = sorted((draw(numbers), draw(numbers)))
    schema = {"type": kind, low: least, high: most, **more}
    for key in draw(st.sets(st.sampled_from([low, high]))):
        del schema[key]
    return schema


def scalars() -> st.SearchStrategy[Schema]:
    return st.one_of(
        st.sampled_from([{"type": kind} for kind in ("string", "integer", "number", "boolean", "null")]),
        st.builds(lambda values: {"enum": values}, st.lists(_VALUES, min_size=1, max_size=4)),
        st.builds(lambda value: {"const": value}, _VALUES),
        bounded("string", "minLength", "maxLength", _SMALL),
        bounded("integer", "minimum", "maximum", st.integers(-1200, 1200)),
        bounded("number", "minimum", "maximum", st.integers(-40, 40).map(lambda n: n / 4)),
        bounded("integer", "exclusiveMinimum", "maximum", st.integers(-50, 50)).filter(
            lambda s: s.get("exclusiveMinimum", -99) < s.get("maximum", 99)
        ),
        st.builds(lambda n: {"type": "integer", "multipleOf": n}, st.integers(1, 40)),
        st.sampled_from(["^[a-c]{1,3}$", "b+", "^x", "[0-9]$", r"^\w+-\d$", '^"|\\\\$', "^(é|\n)*$"]).map(
            lambda pattern: {"type": "string", "pattern": pattern}
        ),
        st.sampled_from(["date", "uuid", "ipv4", "email"]).map(lambda name: {"type": "string", "format": name}),
        st.just({"type": ["integer", "null"]}),
    )


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[Schema]) -> Schema:
    properties = draw(st.dictionaries(_NAMES, inner, max_size=4))
    schema: Schema = {"type": "object", "properties": properties}
    schema["required"] = draw(st.lists(st.sampled_from(sorted(properties)), unique=True)) if properties else []
    more = draw(st.sampled_from(["closed", "open", "typed", "patterns", "counted"]))
    if more != "open":
        schema["additionalProperties"] = draw(inner) if more == "typed" else False
    if more == "patterns":
        schema["patternProperties"] = {"^y[0-9]+$": draw(inner)}
    if more == "counted":
        schema = {"type": "object", "minProperties": draw(st.integers(0, 1)), "maxProperties": draw(st.integers(1, 3))}
    return schema


@st.composite
def arrays(draw: st.DrawFn, inner: st.SearchStrategy[Schema]) -> Schema:
    schema = draw(bounded("array", "minItems", "maxItems", _SMALL, items=draw(inner)))
    if draw(st.booleans()):
        schema["prefixItems"] = draw(st.lists(inner, min_size=1, max_size=2))
    return schema


def _alternatives(options: list[Schema]) -> Schema:
    return {"anyOf": options}


def schemas() -> st.SearchStrategy[Schema]:
    """Schemas that some value satisfies, most of the time."""
    tree = st.recursive(
        scalars(),
        lambda inner: st.one_of(
            objects(inner), arrays(inner), st.lists(inner, min_size=1, max_size=3).map(_alternatives)
        ),
        max_leaves=6,
    )
    return st.one_of(tree, referring(tree), merged(tree))


@st.composite
def referring(draw: st.DrawFn, tree: st.SearchStrategy[Schema]) -> Schema:
    """A list of nodes that hold something and may hold another list."""
    node = {
        "type": "object",
        "properties": {"value": draw(tree), "more": {"$ref": "#/$defs/nodes"}},
        "required": ["value"],
        "additionalProperties": False,
    }
    nodes = {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2}
    return {"$ref": "#/$defs/nodes", "$defs": {"node": node, "nodes": nodes}}


@st.composite
def merged(draw: st.DrawFn, tree: st.SearchStrategy[Schema]) -> Schema:
    """Two demands on one object."""
    first = {"type": "object", "properties": {"a": draw(tree)}, "required": ["a"]}
    second = {"properties": {"b": draw(tree)}, "required": draw(st.sampled_from([[], ["b"]]))}
    return {"allOf": [first, second], "maxProperties": 4} if draw(st.booleans()) else {**first, "allOf": [second]}
