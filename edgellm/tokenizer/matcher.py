"""Finding whole tokens, such as chat markers, in text before it is encoded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator


class TokenMatcher:
    """Splits text around a set of fixed token texts: leftmost match first, the longest of several.

    The regular expression only proposes places by the tokens' first two characters; the rest is looked up
    by length, so thousands of tokens cost no more than a few.
    """

    def __init__(self, tokens: Iterable[tuple[str, int]]) -> None:
        self._ids: dict[str, int] = {}
        for text, token in tokens:
            if text:
                self._ids.setdefault(text, token)
        lengths: dict[str, set[int]] = {}
        for text in self._ids:
            lengths.setdefault(text[:2], set()).add(len(text))
        # A one-character token is also tried where the two-character heads match.
        self._lengths = {
            head: sorted(found | lengths.get(head[0], set()), reverse=True) for head, found in lengths.items()
        }
        heads = sorted(self._lengths, key=len, reverse=True)
        self._heads = re.compile("|".join(map(re.escape, heads))) if heads else None

    def split(self, text: str, allowed: Callable[[int, int, int], bool] | None = None) -> Iterator[str | int]:
        """Pieces of plain text (never empty) and token ids, in the order of the text.

        allowed: whether (token, start, end) may be taken as a token there; all may, by default.
        """
        start = place = 0
        while self._heads and (head := self._heads.search(text, place)):
            place = head.start()
            for length in self._lengths[head[0]]:
                token = self._ids.get(text[place : place + length])
                if token is not None and (allowed is None or allowed(token, place, place + length)):
                    if place > start:
                        yield text[start:place]
                    yield token
                    start = place = place + length
                    break
            else:
                place += 1
        if start < len(text):
            yield text[start:]
