"""Values that fit a schema, in notations other than JSON: those of Python and of Gemma."""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgellm.errors import GrammarError
from edgellm.structured.grammar import inline_json, literal
from edgellm.structured.keywords import target


@dataclass(frozen=True, slots=True)
class Rules:
    """An expression in the grammar's own language, and the rules it refers to."""

    start: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Notation:
    """How values are written.  Its functions raise GrammarError for what cannot be."""

    words: Mapping[Any, tuple[str, ...]]
    """The spellings of true, false and null."""
    text: Callable[[str], str]
    """An expression for a given text."""
    key: Callable[[str], str]
    """An expression for a given key of an object, with what separates it from its value."""
    lines: tuple[str, ...]
    """The rules `text`, for any text, `key`, for any key and what follows it, and `comma`."""
    ordered: bool = False
    """Whether keys are in the order of the alphabet, and not of the schema."""


def call_arguments(notation: Notation, schema: Mapping[str, Any], name: str, key: Callable[[str], str]) -> Rules:
    """Arguments by name, without what is around them.

    name: a beginning for the names of rules, by which this schema differs from others in the same grammar.
    Raises GrammarError for a schema that demands what cannot be said in this notation.
    """
    writer = _Writer(notation, schema, name)
    properties = schema.get("properties")
    if properties is None or (schema.get("additionalProperties") not in (None, False) and not properties):
        raise GrammarError("arguments without names")
    return Rules(writer.members(schema, key) or '""', writer.all_lines())


def written(notation: Notation, schema: Mapping[str, Any], name: str) -> Rules:
    """A value that fits a schema.  `name` and errors as in `call_arguments`."""
    writer = _Writer(notation, schema, name)
    return Rules(writer.value(schema), writer.all_lines())


_SILENT = frozenset(
    ("title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly", "$comment")
) | {"$schema", "$id", "$defs", "definitions", "nullable"}
_TEXT = frozenset(("pattern", "minLength", "maxLength", "format"))
"""Keywords that are left out of account: texts are only texts."""
_NUMBER = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"))
_ARRAY = frozenset(("items", "minItems", "maxItems"))
_OBJECT = frozenset(("properties", "required", "additionalProperties"))
_KINDS = {"string": _TEXT, "integer": _NUMBER, "number": _NUMBER, "array": _ARRAY, "object": _OBJECT}
_ANY = (
    "any: text | any_number | any_word | any_list | any_object",
    'any_number: %json {"type": "number"}',
    'any_list: "[" (any (comma any)*)? "]"',
    'any_object: "{" (key any (comma key any)*)? "}"',
)


class _Writer:
    """The rules for the schemas within one."""

    def __init__(self, notation: Notation, root: Mapping[str, Any], name: str) -> None:
        self._notation, self._root, self._name = notation, root, name
        self._lines: list[str] = []
        self._count = 0
        self._referred: dict[str, str] = {}

    def all_lines(self) -> tuple[str, ...]:
        words = [f"any_word: {' | '.join(literal(word) for some in self._notation.words.values() for word in some)}"]
        return (*self._notation.lines, *_ANY, *words, *self._lines)

    def value(self, schema: Any) -> str:
        """An expression for the values that fit a schema; a name, so that it can stand anywhere."""
        if schema is True or (isinstance(schema, Mapping) and not schema.keys() - _SILENT):
            return "any"
        if not isinstance(schema, Mapping):
            raise GrammarError("a value that cannot be")
        said = schema.keys() - _SILENT
        if "$ref" in said:
            return self._reference(schema["$ref"])
        if "const" in said or "enum" in said:
            self._only(said, {"const", "enum", "type", *_TEXT})
            options = [schema["const"]] if "const" in said else schema["enum"]
            if not options:
                raise GrammarError("an enumeration of nothing")
            return self._rule(" | ".join(self._constant(option) for option in options))
        if "anyOf" in said:
            self._only(said, {"anyOf"})
            return self._rule(" | ".join(self.value(option) for option in schema["anyOf"]))
        kinds = schema.get("type") or ("object" if "properties" in said else "array" if "items" in said else [])
        kinds = [kinds] if isinstance(kinds, str) else list(kinds)
        self._only(said, {"type"}.union(*(_KINDS.get(kind, frozenset()) for kind in kinds)))
        return self._rule(" | ".join(self._of_kind(kind, schema) for kind in kinds))

    def members(self, schema: Mapping[str, Any], key: Callable[[str], str]) -> str:
        """The listed members of an object, each at most once; empty if there are none."""
        self._only(schema.keys() - _SILENT, _OBJECT | {"type"})
        properties: Mapping[str, Any] = schema.get("properties") or {}
        required = set(schema.get("required") or ())
        if required - properties.keys():
            raise GrammarError(f"the required key {min(required - properties.keys())!r}, of which nothing is said")
        names = sorted(properties, key=lambda name: (name.lower(), name)) if self._notation.ordered else properties
        first = after = ""
        for name in reversed(list(names)):
            own = self._rule(f"{key(name)} {self.value(properties[name])}")
            start = f"{own} {after}"
            first = self._rule(start if name in required or not first else f"{start} | {first}")
            after = self._rule(f"(comma {own}){'' if name in required else '?'} {after}")
        return f"{first}?" if first and not required else first

    def _rule(self, expression: str) -> str:
        name = f"{self._name}_{self._count}"
        self._count += 1
        self._lines.append(f"{name}: {expression}")
        return name

    def _only(self, said: Any, known: Any) -> None:
        if said - known:
            raise GrammarError(f"the keyword {min(said - known)!r}")

    def _reference(self, reference: str) -> str:
        if reference not in self._referred:
            found = target(self._root, reference)
            if found is None:
                raise GrammarError(f"the reference {reference!r}")
            name = self._referred[reference] = f"{self._name}_ref{len(self._referred)}"
            self._lines.append(f"{name}: {self.value(found[1])}")
        return self._referred[reference]

    def _constant(self, value: Any) -> str:
        if isinstance(value, str):
            return self._notation.text(value)
        if value is None or isinstance(value, bool):
            return f"({' | '.join(map(literal, self._notation.words[value]))})"
        if isinstance(value, (int, float)):
            return literal(json.dumps(value))
        raise GrammarError("a list or an object as a constant")

    def _of_kind(self, kind: str, schema: Mapping[str, Any]) -> str:
        if kind == "string":
            return "text"
        if kind in ("integer", "number"):
            return inline_json({"type": kind, **{word: schema[word] for word in _NUMBER & schema.keys()}})
        if kind == "boolean":
            return f"{self._constant(True)} | {self._constant(False)}"
        if kind == "null":
            return self._constant(None)
        return self._array(schema) if kind == "array" else self._object(schema)

    def _array(self, schema: Mapping[str, Any]) -> str:
        least, most = int(schema.get("minItems", 0)), schema.get("maxItems")
        if most is not None and most < max(1, least):
            raise GrammarError("a list that is always empty, or cannot be")
        item = self.value(schema.get("items", True))
        more = f"{{{max(0, least - 1)},{'' if most is None else int(most) - 1}}}"
        return f'"[" ({item} (comma {item}){more}){"" if least else "?"} "]"'

    def _object(self, schema: Mapping[str, Any]) -> str:
        other = schema.get("additionalProperties", True)
        if schema.get("properties") or other is False:
            return f'"{{" {self.members({k: v for k, v in schema.items() if k in _OBJECT}, self._notation.key)} "}}"'
        if schema.get("required"):
            raise GrammarError("required keys, of which nothing is said")
        value = self.value(other)
        return f'"{{" (key {value} (comma key {value})*)? "}}"'


def python(end: str) -> Notation:
    """Python's notation.  Texts do not contain `end`."""
    not_end = f"~/(?s:.*){re.escape(end)}(?s:.*)/"
    # Without the escapes by number, which can be halves of characters; line ends as they are, as models write them.
    single, double = (rf"{q}([^{q}\\\x00-\x08\x0b-\x1f]|\\['\x22\\nrt])*{q}" for q in ("'", r"\x22"))
    lines = ("text: TEXT", f"TEXT: /{single}|{double}/ & {not_end}", r"key: text /:\x20?/", r"comma: /,\x20?/")

    def text(value: str) -> str:
        _without_marks(value, (end,))
        quoted = json.dumps(value, ensure_ascii=False)
        return f"({literal(quoted)} | {literal(_single(quoted))})"

    words = {True: ("True", "true"), False: ("False", "false"), None: ("None", "null")}
    return Notation(words, text, lambda name: rf"{text(name)} /:\x20?/", lines)


def python_keyword(name: str) -> str:
    """A parameter's name before its value.  Raises GrammarError for what is no name in Python."""
    if not (name.isascii() and name.isidentifier()) or keyword.iskeyword(name):
        raise GrammarError(f"the parameter {name!r}, which is no name in Python")
    return literal(f"{name}=")


def gemma(quote: str, end: str, quote_token: int | None) -> Notation:
    """Gemma's notation: texts between two of `quote`, which is a token or a text, without it and `end` in them."""
    none = f"~/(?s:.*)({re.escape(quote)}|{re.escape(end)})(?s:.*)/"
    if quote_token is not None:
        lines = [f"quote: <[{quote_token}]>", f"TEXT: /(?s:.*)/ & {none}", "text: quote TEXT quote"]
    else:
        # In one expression: a text by itself would take what can be the beginning of the mark.
        ends = f"/(?s:.*){re.escape(quote)}/ & ~/(?s:.*){re.escape(quote)}(?s:.+)/ & ~/(?s:.*){re.escape(end)}(?s:.*)/"
        lines = [f"quote: {literal(quote)}", f"TEXT: {ends}", "text: quote TEXT"]

    def text(value: str) -> str:
        _without_marks(value, (quote, end))
        return f"(quote {literal(value)} quote)" if value else "(quote quote)"

    def key(name: str) -> str:
        if not re.fullmatch(r"[\w.-]+", name):
            raise GrammarError(f"the key {name!r}, which has no form without quotes")
        return literal(f"{name}:")

    words = {True: ("true",), False: ("false",), None: ("null", "None")}
    return Notation(words, text, key, (*lines, "key: /[A-Za-z0-9_.-]{1,64}:/", 'comma: ","'), ordered=True)


def _single(quoted: str) -> str:
    """A text in double quotes, with single ones."""
    inner = quoted[1:-1].replace('\\"', '"').replace("'", "\\'")
    return f"'{inner}'"


def _without_marks(value: str, marks: Sequence[str]) -> None:
    for mark in marks:
        if mark in value:
            raise GrammarError(f"a text with {mark!r} in it")
