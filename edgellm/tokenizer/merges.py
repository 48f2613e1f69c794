"""Byte-pair merging: which neighbours become one, and in which order.

Our own, because a quarter of a million tokens and half a million merges are ready in a fifth of the time that the
``tokenizers`` library takes to copy them, and words repeat, so that few are ever merged.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import pairwise

from edgellm.tokenizer.fields import Fields
from edgellm.tokenizer.vocabulary import TokenType, Vocabulary

# Above this many parts a heap is faster than looking for the least rank in a list.
_SHORT = 400
_NEVER = 1 << 62
_NO_SEPARATOR = bytes(byte for byte in range(256) if byte not in b" \0")


class Merges:
    """The merges of a vocabulary, and the tokens that plain text may become.

    ids: piece → token; the first of each spelling, no control tokens.

    Raises:
        ModelFormatError: there are no merges.
    """

    def __init__(self, fields: Fields, vocabulary: Vocabulary, pieces: list[bytes]) -> None:
        self.ids = _encodable(vocabulary, pieces)
        # "left right" → rank.
        self._ranks = _read_ranks(fields, self.ids)

    def apply(self, parts: list[bytes]) -> list[bytes]:
        """Merge neighbours as long as any can be: always the pair that ranks first, of equal ones the leftmost.

        ``parts`` is used up.
        """
        if len(parts) > _SHORT:
            return self._apply_to_many(parts)
        rank_of = self._ranks.get
        ranks = [rank_of(b"%b %b" % pair, _NEVER) for pair in pairwise(parts)]
        while ranks and (least := min(ranks)) != _NEVER:
            at = ranks.index(least)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
            del ranks[at]
            if at < len(ranks):
                ranks[at] = rank_of(b"%b %b" % (parts[at], parts[at + 1]), _NEVER)
            if at:
                ranks[at - 1] = rank_of(b"%b %b" % (parts[at - 1], parts[at]), _NEVER)
        return parts

    def _apply_to_many(self, parts: list[bytes]) -> list[bytes]:
        """The same with a heap of rank and place, in one number each. A part that was merged away is empty."""
        n = len(parts)
        rank_of = self._ranks.get
        before, after = list(range(-1, n - 1)), list(range(1, n + 1))
        found = ((rank_of(b"%b %b" % pair), at) for at, pair in enumerate(pairwise(parts)))
        heap = [rank << 32 | at for rank, at in found if rank is not None]
        heapify(heap)
        while heap:
            best = heappop(heap)
            at = best & 0xFFFFFFFF
            right = after[at]
            if not parts[at] or right >= n or rank_of(b"%b %b" % (parts[at], parts[right])) != best >> 32:
                continue
            parts[at] += parts[right]
            parts[right] = b""
            after[at] = after[right]
            if after[at] < n:
                before[after[at]] = at
            for left in (before[at], at):
                if left >= 0 and after[left] < n:
                    rank = rank_of(b"%b %b" % (parts[left], parts[after[left]]))
                    if rank is not None:
                        heappush(heap, rank << 32 | left)
        return [part for part in parts if part]


def _encodable(vocabulary: Vocabulary, pieces: list[bytes]) -> dict[bytes, int]:
    ids = dict(zip(pieces, range(len(pieces)), strict=True))
    if len(ids) < len(pieces):
        ids = dict(zip(reversed(pieces), range(len(pieces) - 1, -1, -1), strict=True))
    for token in vocabulary.ids_of_type(TokenType.CONTROL):
        if ids.get(pieces[token]) == token:
            del ids[pieces[token]]
    return ids


def _read_ranks(fields: Fields, ids: dict[bytes, int]) -> dict[bytes, int]:
    lines = fields.strings("merges")
    if lines is None:
        raise fields.error("merges", "is missing, and text cannot be encoded without it")
    text = b"\0".join(lines)
    # All as one text, for speed.
    if text.translate(None, _NO_SEPARATOR) != (b" \0" * len(lines))[:-1] or not all(
        map(ids.__contains__, text.replace(b" ", b"").split(b"\0") if lines else [])
    ):
        usable = [line for line in lines if line.count(b" ") == 1 and line.replace(b" ", b"") in ids]
        if len(usable) < len(lines):
            odd = len(lines) - len(usable)
            fields.warn("merges", f"has {odd} lines that do not join two tokens to a third; ignored")
        lines = usable
    return dict(zip(lines, range(len(lines)), strict=True))
