"""Reading a text that comes in chunks as if it were all there.

A parser is a generator over a `Reader`. Where the text so far does not decide what comes next, it yields, and goes on
when there is more. So its result cannot depend on where the chunks were cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from functools import cache
from typing import TypeVar

T = TypeVar("T")
Parse = Generator[None, None, T]

_STRUCTURE = re.compile(r'["{}\[\]]')
_STRING = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)
_SPACE = re.compile(r"\s*")
_SCALAR = re.compile(r"[^\s,;{}\[\]\"]*")


class Reader:
    """The text of a reply, from the place where the parser is."""

    def __init__(self) -> None:
        self._text = ""
        self._at = 0
        self._start: int | None = None
        self.ended = False
        """No more text will come."""

    def feed(self, text: str) -> None:
        """Add a chunk."""
        done = self._at if self._start is None else self._start
        self._text = self._text[done:] + text
        self._at -= done
        if self._start is not None:
            self._start = 0

    def checkpoint(self) -> None:
        """Remember this place, to come back to it if what follows is not what it seems."""
        self._start = self._at

    def rewind(self) -> None:
        """Go back to the checkpoint."""
        assert self._start is not None
        self._at, self._start = self._start, None

    def commit(self) -> None:
        """Forget the checkpoint."""
        self._start = None

    def rest(self, emit: Callable[[str], None]) -> Parse[None]:
        """Read to the end."""
        while True:
            emit(self._text[self._at :])
            self._at = len(self._text)
            if self.ended:
                return
            yield

    def until(
        self, marks: tuple[str, ...], emit: Callable[[str], None], limit: int | None = None, keep: bool = False
    ) -> Parse[str | None]:
        """Read up to the first mark and over it (not with `keep`), of two that begin together the longer one.

        Returns the mark, or None at the end of the text or if none begins within `limit` characters.
        """
        pattern = _either(marks)
        left = limit
        while True:
            text, at = self._text, self._at
            stop = len(text) if left is None else min(len(text), at + left)
            found = pattern.search(text, at)
            held = _unfinished(marks, text, at)
            place = found.start() if found else len(text)
            if found and place <= stop and (self.ended or place < held):
                self._at = place if keep else found.end()
                if place > at:
                    emit(text[at:place])
                return found[0]
            safe = len(text) if self.ended else min(held, place)
            if left is not None and safe > stop:
                return None
            if safe > at:
                self._at = safe
                if left is not None:
                    left -= safe - at
                emit(text[at:safe])
            if self.ended:
                return None
            yield

    def accept(self, *options: str) -> Parse[str | None]:
        """Read over the longest of the options that comes next; None if none does."""
        longest = max(map(len, options), default=0)
        while True:
            waits = self._text[self._at : self._at + longest]
            if self.ended or not any(len(waits) < len(option) and option.startswith(waits) for option in options):
                break
            yield
        for option in sorted(options, key=len, reverse=True):
            if waits.startswith(option):
                self._at += len(option)
                return option
        return None

    def space(self) -> Parse[str]:
        """Read over white space; returns it."""
        parts: list[str] = []
        yield from self._run(_SPACE, parts.append)
        return "".join(parts)

    def peek(self) -> Parse[str]:
        """The next character, not read; empty at the end."""
        while self._at >= len(self._text) and not self.ended:
            yield
        return self._text[self._at : self._at + 1]

    def value(self, emit: Callable[[str], None]) -> Parse[bool]:
        """Read one JSON value, its pieces as they come.  Returns whether it has come to its end.

        It is as correct as the text is: only strings and brackets are looked at.
        """
        depth = 0
        first = yield from self.peek()
        if first not in ("{", "[", '"'):
            return (yield from self._run(_SCALAR, emit)) if first else False
        while True:
            found = _STRUCTURE.search(self._text, self._at)
            end = found.end() if found else len(self._text)
            emit(self._text[self._at : end])
            self._at = end
            if found and found[0] == '"':
                yield from self._run(_STRING, emit)
                if not (yield from self.accept('"')):
                    return False
                emit('"')
            elif found:
                depth += 1 if found[0] in "{[" else -1
            if found and depth <= 0:
                return True
            if not found:
                if self.ended:
                    return False
                yield

    def string(self) -> Parse[str | None]:
        """Read a JSON string, with its quotes; None if there is none."""
        if not (yield from self.accept('"')):
            return None
        parts = ['"']
        yield from self._run(_STRING, parts.append)
        if not (yield from self.accept('"')):
            return None
        return "".join([*parts, '"'])

    def _run(self, pattern: re.Pattern[str], emit: Callable[[str], None]) -> Parse[bool]:
        """Read what matches a pattern that can be matched piece by piece; returns whether something else follows."""
        while True:
            found = pattern.match(self._text, self._at)
            assert found is not None
            if found.end() > self._at:
                emit(found[0])
                self._at = found.end()
            # What stopped the pattern is another character, or half of an escape that waits for the other half.
            left = self._text[self._at :]
            if self.ended or (left and left != "\\"):
                return bool(left)
            yield


@cache
def _either(marks: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(marks, key=len, reverse=True))) or r"(?!)")


def _unfinished(marks: tuple[str, ...], text: str, start: int) -> int:
    """Where the first mark begins that the end of the text cuts off; the end of the text if none does."""
    found = len(text)
    for mark in marks:
        at = text.find(mark[0], max(start, len(text) - len(mark) + 1), found)
        while at >= 0:
            if mark.startswith(text[at:]):
                found = at
                break
            at = text.find(mark[0], at + 1, found)
    return found
