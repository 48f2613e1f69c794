"""What a reply is made of, while it comes and as a whole."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

_ID_CHARS = string.ascii_letters + string.digits


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class ContentDelta:
    """More of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """A call begins; calls are numbered from 0 within the reply."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """More of the JSON text of a call's arguments."""

    index: int
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool returned; only where tools are run for the model."""

    index: int
    id: str
    name: str
    text: str


Event = ReasoningDelta | ContentDelta | ToolCallStart | ToolCallDelta | ToolResult


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A function that the model wants called."""

    id: str
    name: str
    json: str
    """The arguments as the model wrote them, as JSON."""
    complete: bool = True
    """Whether the call was written to its end."""
    arguments: dict[str, Any] = field(init=False, compare=False)
    """The arguments; empty where `problem` says why they cannot be had."""
    problem: str | None = field(init=False, compare=False)

    def __post_init__(self) -> None:
        arguments, problem = _read(self.json) if self.complete else ({}, "the call was cut off")
        object.__setattr__(self, "arguments", arguments)
        object.__setattr__(self, "problem", problem)

    def as_message(self) -> dict[str, Any]:
        """The call as an entry of `tool_calls` in a message."""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.json}}


def _read(text: str) -> tuple[dict[str, Any], str | None]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return {}, f"the arguments are not JSON: {error}"
    if not isinstance(value, dict):
        return {}, f"the arguments are not an object, but {text:.40}"
    return value, None


def new_id() -> str:
    """A name for a call: nine letters and digits, which is what Mistral's templates insist on."""
    return "".join(random.SystemRandom().choices(_ID_CHARS, k=9))


class _Text:
    """One kind of text in a reply: white space at the borders to other kinds belongs to neither."""

    def __init__(self, emit: Callable[[str], None], trim: bool) -> None:
        self._emit = emit
        self._trim = trim
        self._held = ""
        self.parts: list[str] = []

    def write(self, text: str) -> None:
        if self._trim:
            text = text.lstrip()
            if not text:
                return
            self._trim = False
            self._held = "\n\n" if self.parts else ""
        text = self._held + text
        body = text.rstrip()
        self._held = text[len(body) :]
        if body:
            self.parts.append(body)
            self._emit(body)

    def cut(self) -> None:
        """Something else comes next."""
        self._held, self._trim = "", True

    def forget(self) -> None:
        """Nothing so far counts."""
        self._held = ""
        self.parts.clear()

    def end(self) -> None:
        """Nothing else comes: the white space held back is the end of the text."""
        if self._held:
            self.parts.append(self._held)
            self._emit(self._held)
            self._held = ""


class Sink:
    """Takes the parts of a reply from a parser, in order, as events and all together."""

    def __init__(self, make_id: Callable[[], str] = new_id) -> None:
        self.events: list[Event] = []
        """Not taken yet."""
        self.calls: list[ToolCall] = []
        self._make_id = make_id
        self._reasoning = _Text(lambda text: self.events.append(ReasoningDelta(text)), trim=True)
        self._content = _Text(lambda text: self.events.append(ContentDelta(text)), trim=False)
        self._open: tuple[str, str, list[str]] | None = None

    @property
    def reasoning(self) -> str:
        """All of it so far."""
        return "".join(self._reasoning.parts)

    @property
    def content(self) -> str:
        """All of it so far."""
        return "".join(self._content.parts)

    @property
    def begun(self) -> bool:
        """Whether any call has begun."""
        return bool(self.calls) or self._open is not None

    @property
    def arguments(self) -> str:
        """Those of the call that is open, so far."""
        return "".join(self._open[2]) if self._open is not None else ""

    def write_reasoning(self, text: str) -> None:
        """Take the next piece of reasoning."""
        self._content.cut()
        self._reasoning.write(text)

    def end_reasoning(self) -> None:
        """The reasoning is over, for now."""
        self._reasoning.cut()

    def write_content(self, text: str) -> None:
        """Take the next piece of the answer."""
        if text:
            self._content.write(text)

    def begin_call(self, name: str, id: str | None = None) -> None:
        """Begin a call; a call without an id gets one."""
        self._content.cut()
        id = id or self._make_id()
        self._open = (id, name, [])
        self.events.append(ToolCallStart(len(self.calls), id, name))

    def write_arguments(self, text: str) -> None:
        """Take the next piece of a call's arguments."""
        assert self._open is not None
        if text:
            self._open[2].append(text)
            self.events.append(ToolCallDelta(len(self.calls), text))

    def end_call(self, complete: bool) -> None:
        """End the call; a complete one without arguments has none."""
        assert self._open is not None
        id, name, parts = self._open
        if complete and not "".join(parts).strip():
            self.write_arguments("{}")
        self._open = None
        self.calls.append(ToolCall(id, name, "".join(parts), complete))

    def forget(self) -> None:
        """Leave out of the results what has been written so far."""
        self.events.clear()
        self._reasoning.forget()
        self._content.forget()

    def finish(self) -> None:
        """The reply is over."""
        if self._open is not None:
            self.end_call(complete=False)
        self._content.end()
