"""Showing a reply as it is generated."""

from __future__ import annotations

import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from edgellm.cli.ui import CONTROL, is_terminal, say

if TYPE_CHECKING:
    from edgellm import Generation


def stream(generation: Generation, said: list[str]) -> None:
    """Write a reply to standard output as it comes, adding each piece to `said`; Ctrl-C cancels the generation.

    What the model thinks before it answers is shown beside it, on standard error, and is no part of `said`.
    """
    shown, thoughts = Answer(), Thoughts()
    try:
        with generation, _interrupt_cancels(generation):
            for chunk, is_thought in _pieces(generation):
                if is_thought:
                    thoughts.write(chunk)
                else:
                    thoughts.end()
                    said.append(chunk)
                    shown.write(chunk)
    finally:
        thoughts.end()
        shown.end()


def _pieces(generation: Generation) -> Iterator[tuple[str, bool]]:
    """Yield the text with whether it is a thought; the text of a mere continuation has none."""
    from edgellm import ContentDelta, ReasoningDelta

    events = getattr(generation, "events", None)
    if events is None:
        for chunk in generation:
            yield chunk, False
        return
    for event in events():
        if isinstance(event, (ContentDelta, ReasoningDelta)):
            yield event.text, isinstance(event, ReasoningDelta)


@contextmanager
def _interrupt_cancels(generation: Generation) -> Iterator[None]:
    """Let the first Ctrl-C cancel `generation`; another one raises KeyboardInterrupt.

    A signal handler may run while this thread holds one of the engine's locks, so the cancelling itself is left
    to a helper thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    presses: queue.SimpleQueue[bool] = queue.SimpleQueue()  # The queue whose put() is safe in a signal handler.
    pressed = False

    def watch() -> None:
        if presses.get():
            generation.cancel()

    def on_interrupt(_signal: int, _frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True
        presses.put(True)

    watcher = threading.Thread(target=watch, name="edgellm-interrupt", daemon=True)
    watcher.start()
    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        presses.put(False)
        watcher.join()


class Answer:
    """Standard output for one reply: flushed at once, cleaned if it is a terminal."""

    def __init__(self) -> None:
        self._filter = TerminalFilter() if is_terminal(sys.stdout) else None
        self._last = "\n"

    def write(self, chunk: str) -> None:
        """Show the next piece."""
        text = self._filter.feed(chunk) if self._filter else chunk
        if text:
            self._last = text[-1]
            sys.stdout.write(text)
            sys.stdout.flush()

    def end(self) -> None:
        """Finish the last line, unless the reply did."""
        if self._last != "\n":
            self.write("\n")


class Thoughts:
    """Standard error for what a model thinks before it answers: dimmed, and only where someone is there to see it."""

    def __init__(self) -> None:
        self._filter = TerminalFilter() if is_terminal(sys.stderr) else None
        self._open = False

    def write(self, chunk: str) -> None:
        """Show the next piece."""
        if self._filter is not None:
            self._open = True
            say(self._filter.feed(chunk), end="", dim=True)

    def end(self) -> None:
        """Leave an empty line before the answer."""
        if self._open:
            self._open = False
            say("\n")


class TerminalFilter:
    """Takes terminal control sequences out of a text that comes in chunks.

    A model's words are not to be trusted with the user's terminal: of the control characters only newlines and tabs
    pass.  A sequence may be cut anywhere between two chunks.  The strings that some sequences carry (a window title,
    the clipboard) end at a line end or after `MAX_STRING` characters, so that an open one cannot hide the reply.
    """

    MAX_STRING = 512

    def __init__(self) -> None:
        self._next: Callable[[str], bool] = self._text
        self._length = 0

    def feed(self, chunk: str) -> str:
        """Return what of `chunk` may be shown."""
        if self._next == self._text and not CONTROL.search(chunk):
            return chunk
        return "".join(c for c in chunk if self._next(c))

    def _text(self, c: str) -> bool:
        if c == "\x1b":
            self._next = self._escape
        elif c == "\x9b":
            self._next = self._csi
        elif c in "\x90\x98\x9d\x9e\x9f":
            self._start_string()
        return not CONTROL.match(c)

    def _escape(self, c: str) -> bool:
        if c == "[":
            self._next = self._csi
        elif c in "PX]^_":
            self._start_string()
        elif not " " <= c <= "/":  # Intermediate bytes go on; anything else ends the sequence.
            return self._resume(c, eaten="0" <= c <= "~")
        return False

    def _csi(self, c: str) -> bool:
        return False if " " <= c <= "?" else self._resume(c, eaten="@" <= c <= "~")

    def _start_string(self) -> None:
        self._next, self._length = self._string, 0

    def _string(self, c: str) -> bool:
        self._length += 1
        if c == "\x1b":  # Perhaps the first half of the string's terminator.
            self._next = self._escape
        elif c in "\x07\x9c":
            self._next = self._text
        elif c == "\n" or self._length > self.MAX_STRING:
            return self._resume(c, eaten=False)
        return False

    def _resume(self, c: str, *, eaten: bool) -> bool:
        self._next = self._text
        return not eaten and self._text(c)
