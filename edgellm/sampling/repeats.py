"""How long a repetition each token would lengthen, kept up to date token by token. It is what DRY looks at."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray


class Repeats:
    """The tokens so far and, for each place, how many tokens up to it equal the newest ones.

    A push is one vectorized pass over the history; a whole history is taken in linear time.
    """

    def __init__(self, tokens: Sequence[int], size: int, breakers: Iterable[Sequence[int]] = ()) -> None:
        """size: how many tokens count, -1 for all. breakers: sequences that no repetition reaches across."""
        self._size = size
        self._endings: dict[int, list[tuple[int, ...]]] = {}
        for breaker in breakers:
            self._endings.setdefault(breaker[-1], []).append(tuple(breaker))
        self._single = np.array(sorted(end for end, all_ in self._endings.items() if (end,) in all_), np.int64)
        self._ids = np.zeros(max(64, len(tokens)), np.int64)
        self._runs = np.zeros_like(self._ids)
        self._used = 0
        self._since = 0
        """Tokens after the last breaker."""
        self._ids[: len(tokens)] = tokens
        for _ in tokens:
            self._used += 1
            self._count_since()
        self._runs[: self._used] = _runs(list(tokens))

    def push(self, token: int) -> None:
        """Append a token."""
        used = self._used
        if used == len(self._ids):
            self._make_room()
            used = self._used
        # What ended here and is followed by the new token goes on; everything else begins again.
        longer = self._runs[: max(used - 1, 0)] + 1
        self._runs[1:used] = np.where(self._ids[1:used] == token, longer, 0)
        self._runs[:1] = (self._ids[:1] == token) if used else 0
        self._ids[used] = token
        self._runs[used] = 0
        self._used += 1
        self._count_since()

    def lengthened(self, shortest: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The tokens that would lengthen a repetition of at least `shortest` tokens, and the longest for each."""
        start = 0 if self._size < 0 else max(0, self._used - self._size)
        if self._since < shortest:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        ends = start + np.flatnonzero(self._runs[start : max(self._used - 1, start)] >= shortest)
        lengths = np.minimum(np.minimum(self._runs[ends], ends - start + 1), self._since)
        enough = lengths >= shortest
        following = self._ids[ends[enough] + 1]
        tokens, which = np.unique(following, return_inverse=True)
        longest = np.zeros(tokens.size, np.int64)
        np.maximum.at(longest, which, lengths[enough])
        # A breaker of one token ends repetitions and does not lengthen them.
        keep = ~np.isin(tokens, self._single)
        return tokens[keep], longest[keep]

    def _make_room(self) -> None:
        """Forget the half that does not count any more, or else double the arrays."""
        if 0 <= self._size <= self._used // 2:
            kept = slice(self._used - self._size, self._used)
            self._ids[: self._size], self._runs[: self._size] = self._ids[kept].copy(), self._runs[kept].copy()
            self._used = self._size
        else:
            self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
            self._runs = np.concatenate([self._runs, np.zeros_like(self._runs)])

    def _count_since(self) -> None:
        end = self._used
        for breaker in self._endings.get(int(self._ids[end - 1]), ()):
            if tuple(self._ids[max(0, end - len(breaker)) : end].tolist()) == breaker:
                self._since = 0
                return
        self._since += 1


def _runs(tokens: list[int]) -> list[int]:
    """For each place, how many tokens up to it equal the last ones, 0 at the last place (the Z-algorithm, reversed)."""
    n = len(tokens)
    text = tokens[::-1]
    z = [0] * n
    left = right = 0
    for i in range(1, n):
        if i < right:
            z[i] = min(right - i, z[i - left])
        while i + z[i] < n and text[z[i]] == text[i + z[i]]:
            z[i] += 1
        if i + z[i] > right:
            left, right = i, i + z[i]
    return z[::-1]
