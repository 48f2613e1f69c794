"""Finding the pieces that a text begins with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

Text = TypeVar("Text", str, bytes)


class Prefixes(Generic[Text]):
    """Which lengths are worth a look-up at a place of a text, the longest first, told by the first two units there."""

    def __init__(self, pieces: Iterable[Text]) -> None:
        lengths: dict[Text, set[int]] = {}
        for piece in pieces:
            if piece:
                lengths.setdefault(piece[:2], set()).add(len(piece))
        self._lengths: dict[Text, list[int]] = {
            head: sorted(found | lengths.get(head[:1], set()), reverse=True) for head, found in lengths.items()
        }

    def lengths(self, text: Text, place: int) -> list[int]:
        """Lengths of pieces that may begin at ``place``."""
        head = text[place : place + 2]
        found = self._lengths.get(head)
        return (self._lengths.get(head[:1]) or []) if found is None else found
