"""Keeping what people wrote from becoming control tokens: spelled-out ones are marked before a template runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from edgellm.chat.limits import MAX_NESTING

T = TypeVar("T")


PRIVATE = range(0xE000, 0xF900)
"""Unicode's private use characters, which no template trims, tests or changes the case of."""

Segments = list[tuple[str, bool]]
"""Text and whether it may spell control tokens, as `Tokenizer.encode_segments` takes it."""


class Marker:
    """Marks the control tokens spelled out in messages, and finds them again in the rendered prompt.

    A mark before and one after each spelling: templates can still cut, trim and search the text around them.
    """

    def __init__(self, given: Any, spelled: Callable[[str], frozenset[str]]) -> None:
        """`given` is all that a template will get: texts in lists and mappings; `spelled` returns the spellings of
        control tokens that a text contains."""
        texts = list(strings(given))
        self._spellings = frozenset().union(*map(spelled, texts))
        free = unused_marks("\0".join(texts)) if self._spellings else iter("\ue000\ue001")
        self._before, self._after = next(free), next(free)
        # Of two spellings that begin alike the longer one, as the tokenizer matches them.
        either = "|".join(map(re.escape, sorted(self._spellings, key=len, reverse=True)))
        self._plain = re.compile(either)
        # Some templates write JSON with everything but ASCII escaped.
        before, after = (f"(?:{mark}|{re.escape(_escaped(mark))})" for mark in (self._before, self._after))
        self._marked = re.compile(f"{before}({either}){after}")
        # A template that cut through a marked text may have left one mark of the two.
        self._stray = re.compile(f"{before}|{after}")

    def mark(self, value: T) -> T:
        """Return messages or other values for the template, copied if anything needs a mark."""
        return cast(T, self._copy(value)) if self._spellings else value

    def _copy(self, value: Any, nesting: int = 0) -> Any:
        if isinstance(value, str):
            return self._plain.sub(lambda found: f"{self._before}{found[0]}{self._after}", value)
        if nesting > MAX_NESTING:
            return value
        if isinstance(value, Mapping):
            return {self._copy(key): self._copy(item, nesting + 1) for key, item in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, bytes):
            return [self._copy(item, nesting + 1) for item in value]
        return value

    def segments(self, prompt: str) -> Segments:
        """Cut a rendered prompt: what was marked may not spell control tokens, the rest may."""
        if not self._spellings:
            return [(prompt, True)]
        parts = self._marked.split(prompt)
        return [(self._stray.sub("", part), i % 2 == 0) for i, part in enumerate(parts)]


def _escaped(mark: str) -> str:
    return f"\\u{ord(mark):04x}"


def unused_marks(text: str) -> Iterator[str]:
    """Return the private use characters that do not occur in a text, as they are or escaped."""
    return (mark for mark in map(chr, PRIVATE) if mark not in text and _escaped(mark) not in text)


def strings(value: Any, nesting: int = 0) -> Iterator[str]:
    """All texts in a value, keys of mappings among them, as deep as templates take values."""
    if isinstance(value, str):
        yield value
    elif nesting > MAX_NESTING:
        return  # the template will refuse it
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from strings(key, nesting + 1)
            yield from strings(item, nesting + 1)
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for item in value:
            yield from strings(item, nesting + 1)
