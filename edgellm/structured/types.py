"""Python types as JSON Schema, and values of these types from JSON data."""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin

from edgellm.errors import GrammarError

_SCALARS: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}
_WRAPPERS = (Annotated, Required, NotRequired)


def type_schema(kind: Any) -> dict[str, Any]:
    """The JSON Schema of a type.

    kind: str, int, float, bool, None, Any; Literal, Enum, Optional and unions; list, tuple, dict with text keys;
        dataclasses and TypedDicts, also such as refer to themselves. Fields with a default may be left out.

    Raises GrammarError, naming the type and its place, for any other.
    """
    definitions: dict[str, Any] = {}
    names: dict[Any, str] = {}
    schema = _schema(kind, _name(kind), definitions, names)
    return {**schema, "$defs": definitions} if definitions else schema


def _schema(kind: Any, where: str, definitions: dict[str, Any], names: dict[Any, str]) -> dict[str, Any]:
    def inner(part: Any, suffix: str = "") -> dict[str, Any]:
        return _schema(part, where + suffix, definitions, names)

    origin, args = get_origin(kind), get_args(kind)
    if kind in (None, type(None)):
        return {"type": "null"}
    if kind in (Any, object):
        return {}
    if isinstance(kind, type) and kind in _SCALARS:
        return {"type": _SCALARS[kind]}
    if origin in _WRAPPERS:
        return inner(args[0])
    if origin is Literal:
        return {"enum": list(args)}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {"enum": [member.value for member in kind]}
    if origin in (Union, types.UnionType):
        return {"anyOf": [inner(part) for part in args]}
    if kind in (list, Sequence) or origin in (list, Sequence):
        return {"type": "array", "items": inner(args[0], "[…]")} if args else {"type": "array"}
    if kind is tuple or origin is tuple:
        return _tuple(args, inner)
    if kind in (dict, Mapping) or origin in (dict, Mapping):
        if args and args[0] is not str:
            raise GrammarError(f"schema: {where} has keys of type {_name(args[0])}, JSON has text only")
        return {"type": "object", "additionalProperties": inner(args[1], "[…]")} if args else {"type": "object"}
    if dataclasses.is_dataclass(kind) or typing.is_typeddict(kind):
        return _object(kind, where, definitions, names)
    raise GrammarError(
        f"schema: {where} is of type {_name(kind)}, which has no JSON form here: use str, int, float, bool, None, "
        "Literal, Enum, list, tuple, dict, a union, a dataclass or a TypedDict"
    )


def _tuple(args: tuple[Any, ...], inner: Any) -> dict[str, Any]:
    if not args:
        return {"type": "array"}
    if len(args) == 2 and args[1] is ...:
        return {"type": "array", "items": inner(args[0], "[…]")}
    parts = [inner(part, f"[{i}]") for i, part in enumerate(args)]
    return {"type": "array", "prefixItems": parts, "items": False, "minItems": len(parts), "maxItems": len(parts)}


def _object(kind: Any, where: str, definitions: dict[str, Any], names: dict[Any, str]) -> dict[str, Any]:
    """A reference to a definition, made at the first meeting: types may refer to themselves."""
    if kind not in names:
        name = kind.__name__ if kind.__name__ not in definitions else f"{kind.__name__}{len(definitions)}"
        names[kind] = name
        definitions[name] = {}
        hints = _hints(kind)
        properties = {key: _schema(hint, f"{where}.{key}", definitions, names) for key, hint in hints.items()}
        definitions[name] = {
            "type": "object",
            "properties": properties,
            "required": [key for key in hints if key in _required(kind)],
            "additionalProperties": False,
        }
    return {"$ref": f"#/$defs/{names[kind]}"}


def _hints(kind: Any) -> dict[str, Any]:
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except (NameError, TypeError) as error:
        raise GrammarError(f"schema: the annotations of {_name(kind)} cannot be resolved: {error}") from None
    if dataclasses.is_dataclass(kind):
        return {field.name: hints[field.name] for field in dataclasses.fields(kind) if field.init}
    return hints


def _required(kind: Any) -> frozenset[str]:
    if typing.is_typeddict(kind):
        # Python itself overlooks these marks in annotations that are text.
        marks = {key: get_origin(hint) for key, hint in _hints(kind).items()}
        by_mark = {key for key, mark in marks.items() if mark is Required}
        unmarked = {key for key, mark in marks.items() if mark not in (Required, NotRequired)}
        return frozenset(by_mark | unmarked & kind.__required_keys__)
    missing = dataclasses.MISSING
    fields = [field for field in dataclasses.fields(kind) if field.init]
    return frozenset(f.name for f in fields if f.default is missing and f.default_factory is missing)


def _name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)


def read_value(kind: Any, data: Any) -> Any:
    """JSON data as a value of a type, dataclasses made, enums looked up. Raises ValueError for data of other types."""
    origin, args = get_origin(kind), get_args(kind)
    if kind in (Any, object):
        return data
    if origin in _WRAPPERS:
        return read_value(args[0], data)
    if origin in (Union, types.UnionType):
        return _first(args, data)
    if origin is Literal or kind in (None, type(None)):
        options = args if origin is Literal else (None,)
        return _expect(data, any(data == option and type(data) is type(option) for option in options), kind)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(data)
    if isinstance(kind, type) and kind in _SCALARS:
        return _scalar(kind, data)
    if dataclasses.is_dataclass(kind) or typing.is_typeddict(kind):
        hints = _hints(kind)
        _expect(data, isinstance(data, dict) and _required(kind) <= data.keys() <= hints.keys(), kind)
        fields = {key: read_value(hints[key], value) for key, value in data.items()}
        return kind(**fields)
    if kind in (dict, Mapping) or origin in (dict, Mapping):
        _expect(data, isinstance(data, dict), kind)
        return {key: read_value(args[1], value) for key, value in data.items()} if args else data
    _expect(data, isinstance(data, list), kind)
    if kind is tuple or origin is tuple:
        if not args or args[-1] is ...:
            return tuple(read_value(args[0], item) for item in data) if args else tuple(data)
        _expect(data, len(data) == len(args), kind)
        return tuple(map(read_value, args, data))
    return [read_value(args[0], item) for item in data] if args else data


def _first(options: tuple[Any, ...], data: Any) -> Any:
    for option in options:
        try:
            return read_value(option, data)
        except ValueError:
            continue
    raise ValueError(f"{data!r} is none of {', '.join(map(_name, options))}")


def _scalar(kind: type, data: Any) -> Any:
    if kind is float and type(data) is int:
        return float(data)
    return _expect(data, type(data) is kind, kind)


def _expect(data: Any, fits: bool, kind: Any) -> Any:
    if not fits:
        raise ValueError(f"{data!r} is no {_name(kind)}")
    return data
