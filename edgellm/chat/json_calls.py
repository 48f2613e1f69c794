"""Calls written as JSON: whole objects, or a name followed by the object of its arguments."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from edgellm.chat.events import Sink
from edgellm.chat.reader import Parse, Reader

NAMES = ("name", "tool_name", "function")
ARGUMENTS = ("arguments", "parameters", "args")
IDS = ("id", "tool_call_id", "call_id")
HEAD = 300
"""Characters that a call's name and what is around it may take."""


@dataclass(slots=True)
class _Object:
    name: str | None = None
    id: str | None = None
    arguments: str | None = None
    """As far as they came before the name."""
    begun: bool = False
    complete: bool = False

    def begin(self, sink: Sink) -> None:
        self.begun = True
        sink.begin_call(self.name or "", self.id)


def read_objects(reader: Reader, sink: Sink, *, named_by_key: bool = False) -> Parse[bool]:
    """Read objects with a name and arguments, in a list or one after the other.  Returns whether there was any.

    named_by_key: calls are written ``{"name": {arguments}}``.
    """
    found, listed = False, False
    while True:
        reader.checkpoint()
        yield from reader.space()
        if not found:
            listed = bool((yield from reader.accept("[")))
        while found and (yield from reader.accept(",", ";", *["]"] * listed)):
            yield from reader.space()
        yield from reader.space()
        opened = yield from reader.accept("{")
        if found and not opened:
            reader.commit()
            return True
        call = _Object()
        is_call = opened is not None and (yield from _members(reader, sink, call, named_by_key))
        if is_call and not call.begun:
            call.begin(sink)
            sink.write_arguments(call.arguments or "")
            call.complete = True
        if not call.begun:
            reader.rewind()
            return found
        sink.end_call(call.complete)
        reader.commit()
        found = True
        if not is_call:
            return True


def _members(reader: Reader, sink: Sink, call: _Object, named_by_key: bool) -> Parse[bool]:
    """Read the members of an object, the brace behind them included.  Returns whether they make a call."""
    while True:
        yield from reader.space()
        if (yield from reader.accept("}")):
            return call.name is not None
        if (yield from reader.accept(",")):
            continue
        key = _text((yield from reader.string()))
        yield from reader.space()
        if key is None or not (yield from reader.accept(":")):
            return False
        yield from reader.space()
        if key == "function" and (yield from reader.peek()) == "{":
            yield from reader.accept("{")
            if not (yield from _members(reader, sink, call, named_by_key)):
                return False
        elif key in ARGUMENTS and call.name is not None and not call.begun:
            call.begin(sink)
            call.complete = yield from read_arguments(reader, sink)
            if not call.complete:
                return False
        elif named_by_key and call.name is None and (yield from reader.peek()) == "{":
            call.name = key
            call.begin(sink)
            call.complete = yield from reader.value(sink.write_arguments)
            if not call.complete:
                return False
        else:
            parts: list[str] = []
            if not (yield from reader.value(parts.append)):
                return False
            value = "".join(parts)
            if key in NAMES and call.name is None:
                call.name = _text(value)
            elif key in IDS and call.id is None:
                call.id = _text(value)
            elif key in ARGUMENTS and call.arguments is None:
                call.arguments = unwrapped(value)


def read_arguments(reader: Reader, sink: Sink) -> Parse[bool]:
    """Read arguments: an object as it comes; an object in a string, or null, when it is complete."""
    if (yield from reader.peek()) in ("{", "["):
        return (yield from reader.value(sink.write_arguments))
    parts: list[str] = []
    complete = yield from reader.value(parts.append)
    if complete:
        sink.write_arguments(unwrapped("".join(parts)))
    return complete


def unwrapped(value: str) -> str:
    """The arguments in a JSON value, which may be null or a string that is JSON itself."""
    if value == "null":
        return ""
    inner = _text(value) if value.startswith('"') else None
    return value if inner is None else inner


def _text(value: str | None) -> str | None:
    try:
        text = json.loads(value or "")
    except ValueError:
        return None
    return text if isinstance(text, str) else None


def read_named(reader: Reader, sink: Sink, head: re.Pattern[str], tail: tuple[str, ...]) -> Parse[bool]:
    """Read what `head` matches, with a group "name" and perhaps "id", then an object, then what may close it.

    Returns whether there was a call.
    """
    reader.checkpoint()
    parts: list[str] = []
    yield from reader.until(("{",), parts.append, limit=HEAD, keep=True)
    found = head.fullmatch("".join(parts)) if (yield from reader.peek()) == "{" else None
    if found is None:
        reader.rewind()
        return False
    reader.commit()
    groups = found.groupdict()
    sink.begin_call(groups["name"], groups.get("id"))
    complete = yield from reader.value(sink.write_arguments)
    sink.end_call(complete)
    for mark in tail:
        yield from reader.space()
        yield from reader.accept(mark)
    return True
