"""Calls whose arguments stand one by one between tags, as text."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgellm.chat.events import Sink
from edgellm.chat.reader import Parse, Reader

Schemas = Mapping[str, Mapping[str, Any]]
"""Name of a tool → JSON schema of its parameters."""
LIMIT = 300
"""Characters of a name."""

_NAME = re.compile(r'\s*"?([\w.:/-]+)(?:"[^<>]*)?\s*')
_KEY = re.compile(r'\s*"?([^"]*?)"?(?:\s+(?:string="(true|false)"|type="(\w+)"))?\s*', re.DOTALL)
_CDATA = re.compile(r"<!\[CDATA\[(.*)\]\]>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Tags:
    """How a call is written, after the mark that opens it: a name, then keys and values, then `close`."""

    name_end: tuple[str, ...]
    """What may end the name; `key` and `close` end it too, and are read again."""
    key: str
    """Opens a key."""
    key_end: tuple[str, ...]
    """What stands between the key and its value, perhaps with white space between."""
    value_end: str
    close: str


def read_tagged(reader: Reader, sink: Sink, tags: Tags, schemas: Schemas) -> Parse[bool]:
    """Read a call.  Returns whether there was one."""
    reader.checkpoint()
    parts: list[str] = []
    ends = (*tags.name_end, tags.key, tags.close)
    end = yield from reader.until(ends, parts.append, LIMIT, keep=True)
    found = _NAME.fullmatch("".join(parts)) if end else None
    if found is None:
        reader.rewind()
        return False
    reader.commit()
    if end in tags.name_end:
        yield from reader.accept(*tags.name_end)
    name = found[1]
    properties = schemas.get(name, {}).get("properties", {})
    sink.begin_call(name)
    sink.write_arguments("{")
    between, complete = "", True
    while complete:
        yield from reader.space()
        mark = yield from reader.accept(tags.key, tags.close)
        if mark != tags.key:
            # A call that is not closed is over where something else begins.
            complete = mark is not None or not reader.ended
            break
        sink.write_arguments(between)
        complete = yield from _argument(reader, sink, tags, properties if isinstance(properties, Mapping) else {})
        between = ", "
    if complete:
        sink.write_arguments("}")
    sink.end_call(complete)
    return True


def _argument(reader: Reader, sink: Sink, tags: Tags, properties: Mapping[str, Any]) -> Parse[bool]:
    parts: list[str] = []
    if not (yield from reader.until(tags.key_end[:1], parts.append)):
        return False
    for mark in tags.key_end[1:]:
        yield from reader.space()
        yield from reader.accept(mark)
    found = _KEY.fullmatch("".join(parts))
    key, is_text, kind = found.groups() if found else ("".join(parts), None, None)
    if is_text is not None or kind is not None:
        as_text: bool | None = is_text == "true" or kind == "string"
    else:
        as_text = _is_text(properties.get(key))
    sink.write_arguments(f"{json.dumps(key, ensure_ascii=False)}: ")
    if as_text:
        return (yield from _string(reader, sink, tags.value_end))
    value: list[str] = []
    closed = yield from reader.until((tags.value_end,), value.append)
    if closed:
        sink.write_arguments(_as_json("".join(value), as_text))
    return closed is not None


def _string(reader: Reader, sink: Sink, end: str) -> Parse[bool]:
    """A text as it comes, without the line breaks that stand next to the tags."""
    held, first = "", True

    def write(text: str) -> None:
        nonlocal held, first
        text = held + text
        if first and text:
            first, text = False, text.removeprefix("\n")
        held = "\n" if text.endswith("\n") else ""
        sink.write_arguments(json.dumps(text.removesuffix("\n"), ensure_ascii=False)[1:-1])

    if (yield from reader.peek()) == "<" and (yield from reader.accept("<![CDATA[")):
        end = "]]>" + end
    sink.write_arguments('"')
    if not (yield from reader.until((end,), write)):
        return False
    sink.write_arguments('"')
    return True


def _is_text(schema: object) -> bool | None:
    """Whether a parameter is text and nothing else; None: not known."""
    if not isinstance(schema, Mapping):
        return None
    if isinstance(schema.get("enum"), list):
        return all(isinstance(value, str) for value in schema["enum"])
    kind = schema.get("type")
    return None if kind is None else kind == "string"


def _as_json(text: str, as_text: bool | None) -> str:
    """The JSON of a value that is no text, or of which nobody knows what it is."""
    text = text.removeprefix("\n").removesuffix("\n")
    cdata = _CDATA.fullmatch(text)
    text = cdata[1] if cdata else text
    try:
        json.loads(text)
        return text.strip()
    except (ValueError, RecursionError):
        pass
    if as_text is False or text[:1] in ("[", "{"):
        try:
            # Some templates show earlier arguments to the model as Python writes them.
            return json.dumps(ast.literal_eval(text.strip()), ensure_ascii=False)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            pass
    return json.dumps(text, ensure_ascii=False)
