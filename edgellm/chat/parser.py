"""Splitting a reply into reasoning, answer and calls while it comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from edgellm.chat.events import Event, Sink, ToolCall, new_id
from edgellm.chat.harmony import START, read_harmony
from edgellm.chat.reader import Parse, Reader
from edgellm.chat.recognise import RAW, ReplyFormat
from edgellm.chat.tag_calls import Schemas


class ReplyParser:
    """Reads one reply.  What comes out does not depend on how the text was cut."""

    def __init__(
        self,
        format: ReplyFormat,
        *,
        schemas: Schemas | None = None,
        lead: str = "",
        make_id: Callable[[], str] = new_id,
    ) -> None:
        """schemas: of the parameters of each tool, by name; None: there are no tools, calls are not looked for.

        lead: how the reply began in the prompt already; see `lead_of`.  It is not part of the results.
        """
        self._format = format
        self._schemas = schemas
        self._reader = Reader()
        self._sink = Sink(make_id)
        self.thinking = False
        """Whether the reply is in its reasoning, or ended there."""
        self._steps: Iterator[None] = self._reply(start=not lead or self._opens(lead))
        if lead:
            self.feed(lead)
            self._sink.forget()

    def _opens(self, lead: str) -> bool:
        return self._format.name == "harmony" or lead.lstrip().startswith(self._format.thinking.open)

    @property
    def reasoning(self) -> str:
        """All of it so far."""
        return self._sink.reasoning

    @property
    def content(self) -> str:
        """The answer so far."""
        return self._sink.content

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """Those that have ended."""
        return tuple(self._sink.calls)

    def feed(self, text: str) -> list[Event]:
        """Take a chunk; return what is certain now."""
        self._reader.feed(text)
        return self._go_on()

    def finish(self) -> list[Event]:
        """End the reply; return what was held back."""
        self._reader.ended = True
        return self._go_on()

    def _go_on(self) -> list[Event]:
        next(self._steps, None)
        if self._reader.ended:
            self._sink.finish()
        events, self._sink.events = self._sink.events, []
        return events

    def _reply(self, start: bool) -> Parse[None]:
        reader, sink, format = self._reader, self._sink, self._format
        if format.name == RAW:
            yield from reader.rest(sink.write_content)
            return
        if format.name == "harmony":
            yield from read_harmony(reader, sink, self._schemas is not None)
            return
        thinking, calls = format.thinking, format.calls
        with_calls = self._schemas is not None
        marks = [*([thinking.open] * format.anywhere), *thinking.drop, *calls.drop]
        marks += [*calls.marks, *calls.wraps] * with_calls
        while True:
            if start and (yield from self._start()):
                continue
            start = False
            mark = yield from reader.until(tuple(marks), sink.write_content)
            if mark is None:
                return
            if mark in calls.wraps:
                mark = yield from self._within(mark)
            if mark == thinking.open:
                yield from self._think()
                start = True
            elif mark in calls.marks and not (yield from calls.marks[mark](reader, sink, self._schemas or {})):
                sink.write_content(mark)

    def _start(self) -> Parse[bool]:
        """Read what only the beginning of an answer can be.  Returns whether it was, and may be so again."""
        reader, thinking = self._reader, self._format.thinking
        reader.checkpoint()
        space = yield from reader.space()
        if (yield from reader.accept(thinking.open)):
            reader.commit()
            yield from self._think()
            return True
        read = None
        if self._schemas is not None and self._format.calls.at_start:
            read = self._format.calls.at_start.get((yield from reader.peek()))
        if read is None:
            reader.rewind()
            return False
        reader.commit()
        found = yield from read(reader, self._sink, self._schemas or {})
        if not found:
            self._sink.write_content(space)
        return found

    def _within(self, wrap: str) -> Parse[str]:
        """Read on after a mark around calls; returns the mark of a call, or nothing."""
        self._reader.checkpoint()
        yield from self._reader.space()
        mark = yield from self._reader.accept(*self._format.calls.marks)
        if mark is None:
            self._reader.rewind()
            if not self._sink.calls:
                self._sink.write_content(wrap)
            return ""
        self._reader.commit()
        return mark

    def _think(self) -> Parse[None]:
        self.thinking = True
        closed = yield from self._reader.until((self._format.thinking.close,), self._sink.write_reasoning)
        self._sink.end_reasoning()
        self.thinking = closed is None


def lead_of(prompt: str, format: ReplyFormat, continued: str | None) -> str:
    """What of a prompt is the beginning of the reply: opened reasoning, a mark, or all of a message to continue."""
    if format.name == RAW:
        return ""
    if format.name == "harmony":
        _, begun, lead = prompt.rpartition(START + "assistant")
        return lead if begun else ""
    if continued is not None:
        return continued
    opened = prompt.rfind(format.thinking.open)
    if opened >= 0 and not prompt[opened + len(format.thinking.open) :].strip():
        return prompt[opened:]
    return next((mark for mark in format.calls.marks if prompt.endswith(mark)), "")
