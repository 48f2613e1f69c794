"""Words that were encoded before."""

from __future__ import annotations

from collections.abc import Callable, Iterable

_MOST_WORDS = 1 << 16
_LONGEST = 64


class WordCache:
    """Encodes words one by one and remembers the short ones, which come again and again.

    Safe to use from several threads: at worst a word is encoded twice.
    """

    def __init__(self, encode_word: Callable[[str], list[int]]) -> None:
        self._encode_word = encode_word
        self._known: dict[str, list[int]] = {}

    def encode(self, words: Iterable[str]) -> list[int]:
        """The ids of all words, in order."""
        known = self._known
        ids: list[int] = []
        for word in words:
            found = known.get(word)
            if found is None:
                found = self._encode_word(word)
                if len(word) <= _LONGEST:
                    if len(known) >= _MOST_WORDS:
                        known.clear()
                    known[word] = found
            ids += found
        return ids
