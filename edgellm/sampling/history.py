"""The recent tokens, counted as they come and go."""

from collections import deque

import numpy as np
from numpy.typing import NDArray


class TokenWindow:
    """The distinct tokens among the last `size` ones (-1: among all) and how often each occurs.

    A push costs the same however long the history is, and the counts are ready as arrays: distinct tokens sit
    in the first slots of two arrays that grow by doubling, and a token that leaves is replaced by the last slot.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._recent: deque[int] = deque()
        self._slots: dict[int, int] = {}
        self._ids = np.zeros(64, np.int64)
        self._counts = np.zeros(64, np.int64)

    def push(self, token: int) -> None:
        """Append a token; the oldest one leaves a full window."""
        self._count(token)
        if self._size >= 0:
            self._recent.append(token)
            if len(self._recent) > self._size:
                self._discount(self._recent.popleft())

    def counts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The distinct ids, in no particular order, and their counts: views, valid until the next push."""
        used = len(self._slots)
        return self._ids[:used], self._counts[:used]

    def _count(self, token: int) -> None:
        slot = self._slots.setdefault(token, len(self._slots))
        if slot == len(self._ids):
            self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
        self._ids[slot] = token
        self._counts[slot] += 1

    def _discount(self, token: int) -> None:
        slot = self._slots[token]
        self._counts[slot] -= 1
        if self._counts[slot] == 0:
            last = len(self._slots) - 1
            moved = int(self._ids[last])
            self._ids[slot], self._counts[slot] = moved, self._counts[last]
            self._slots[moved] = slot
            self._counts[last] = 0
            del self._slots[token]
