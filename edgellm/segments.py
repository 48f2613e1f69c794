"""Keeping what people wrote from becoming control tokens: spelled-out ones are marked before a template runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

PRIVATE = range(0xE000, 0xF900)
"""Unicode's private use characters, which no template trims, tests or changes the case of."""

Segments = list[tuple[str, bool]]
"""Text and whether it may spell control tokens, as `Tokenizer.encode_segments` takes it."""


class Marker:
    """Marks the control tokens spelled out in messages, and finds them again in the rendered prompt.

    A mark before and one after each spelling: templates can still cut, trim and search the text around them.
    """

    def __init__(self, messages: Sequence[Mapping[str, Any]], spelled: Callable[[str], frozenset[str]]) -> None:
        """`spelled` returns the spellings of control tokens that a text contains."""
        texts = list(_strings(messages))
        self._spellings = frozenset().union(*map(spelled, texts))
        used = frozenset().union(*texts) if self._spellings else frozenset()
        free = (chr(code) for code in PRIVATE if chr(code) not in used)
        self._before, self._after = next(free), next(free)
        # Of two spellings that begin alike the longer one, as the tokenizer matches them.
        either = "|".join(map(re.escape, sorted(self._spellings, key=len, reverse=True)))
        self._plain = re.compile(either)
        self._marked = re.compile(f"{self._before}({either}){self._after}")

    def mark(self, messages: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """Return the messages, copied if anything in them needs a mark."""
        if not self._spellings:
            return messages
        return [self._copy(message) for message in messages]

    def _copy(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._plain.sub(lambda found: f"{self._before}{found[0]}{self._after}", value)
        if isinstance(value, Mapping):
            return {key: self._copy(item) for key, item in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, bytes):
            return [self._copy(item) for item in value]
        return value

    def segments(self, prompt: str) -> Segments:
        """Cut a rendered prompt: what was marked may not spell control tokens, the rest may."""
        if not self._spellings:
            return [(prompt, True)]
        parts = self._marked.split(prompt)
        # A template that cut through a marked text may have left one mark of the two.
        stray = str.maketrans("", "", self._before + self._after)
        return [(part.translate(stray), i % 2 == 0) for i, part in enumerate(parts)]


def _strings(value: Any) -> Iterator[str]:
    """All texts in messages, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for item in value:
            yield from _strings(item)
