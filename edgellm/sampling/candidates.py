"""The tokens still in play, and the ways to weigh, rank and choose among them.

Nothing sorts the vocabulary. Ties are always broken towards the lower token id, so results do not depend on how
a library orders equal values.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SORTED = 1024
"""So few values are sorted where more are first told apart by a histogram."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The tokens still in play and their logits.

    ids: int64[n], n > 0. logits: float32[n], or float64[n] once a step has changed their scale.
    ranked: True: by falling logit, the lower id first on ties. False: by rising id.
    whole: every token of the vocabulary is there, in the order of the ids.
    """

    ids: NDArray[np.int64]
    logits: NDArray[np.floating[Any]]
    ranked: bool = False
    whole: bool = False

    @classmethod
    def all(cls, logits: NDArray[np.floating[Any]]) -> "Candidates":
        """Every token of the vocabulary: id i has logits[i]."""
        return cls(_all_ids(logits.size), logits, whole=True)

    def take(self, index: NDArray[Any], *, ranked: bool | None = None) -> "Candidates":
        """The candidates at `index`: a boolean array, or integers, ascending unless `ranked` says what they make."""
        if index.dtype == np.bool_:
            index = np.flatnonzero(index)  # several times as fast as two choices by booleans
        return Candidates(self.ids[index], self.logits[index], self.ranked if ranked is None else ranked)

    def head(self, count: int) -> "Candidates":
        """The first `count` candidates."""
        return Candidates(self.ids[:count], self.logits[:count], self.ranked)

    def rescaled(self, logits: NDArray[np.floating[Any]]) -> "Candidates":
        """The same tokens with logits of the same order."""
        return Candidates(self.ids, logits, self.ranked, self.whole)

    def find(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Where those of `ids` are that are in play, and which of `ids` these are."""
        if self.whole:
            return ids, np.ones(ids.size, np.bool_)
        order = np.argsort(self.ids, kind="stable")
        at = order[np.minimum(self.ids.searchsorted(ids, sorter=order), self.ids.size - 1)]
        there = self.ids[at] == ids
        return at[there], there

    def probability(self, token: int) -> float | None:
        """The probability of a token among these, None if it is none of them."""
        at = np.flatnonzero(self.ids == token)
        if not at.size:
            return None
        mass = weights(self.logits)
        return float(mass[at[0]] / mass.sum())

    def surprise(self, token: int) -> float | None:
        """The bits of information that a token among these is, None if it is none of them or impossible."""
        share = self.probability(token)
        return -math.log2(share) if share else None


@lru_cache(maxsize=4)
def _all_ids(n_vocab: int) -> NDArray[np.int64]:
    ids = np.arange(n_vocab)
    ids.flags.writeable = False
    return ids


def weights(logits: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Probabilities up to a common factor: float64, the largest is 1."""
    wide = logits.astype(np.float64)
    wide -= wide.max()
    return np.exp(wide, out=wide)


def greedy(candidates: Candidates) -> int:
    """The token with the largest logit, the lowest id on ties."""
    return int(candidates.ids[candidates.logits == candidates.logits.max()].min())


def draw(candidates: Candidates, uniform: float) -> int:
    """The token at point `uniform` of [0, 1) on the line of probabilities."""
    mass = weights(candidates.logits)
    np.cumsum(mass, out=mass)
    # For u < 1 the product rounds below mass[-1], and a token without mass never is the first to exceed it.
    return int(candidates.ids[mass.searchsorted(uniform * mass[-1], side="right")])


def largest(logits: NDArray[np.floating[Any]], k: int) -> NDArray[np.int64]:
    """Indices of the k largest logits, or of all above -inf if these are fewer.

    Largest first, the lower index first on ties.
    """
    k = min(k, logits.size)
    index = _above(logits, k)
    values = logits[index]
    if index.size > 2 * k + 64:
        kth = np.partition(values, index.size - k)[index.size - k]
        keep = values > kth
        keep[np.flatnonzero(values == kth)[: k - np.count_nonzero(keep)]] = True
        index, values = index[keep], values[keep]
    return index[np.argsort(-values, kind="stable")[:k]]


def _above(logits: NDArray[np.floating[Any]], k: int) -> NDArray[np.int64]:
    """Ascending indices of the finite logits that reach some bound, which at least the k largest do and usually few
    more: the k-th largest of the maxima of many short stretches. Only stretches that reach it are looked into.
    """
    lowest = np.finfo(logits.dtype).min
    width = logits.size // max(512, 4 * k)
    if width < 4:
        return np.flatnonzero(logits >= lowest)
    rows = logits.size // width
    end = rows * width
    peaks = np.maximum.reduceat(logits[:end], np.arange(0, end, width))
    bound = max(lowest, np.partition(peaks, rows - k)[rows - k])
    reached = np.flatnonzero(peaks >= bound)
    row, column = np.divmod(np.flatnonzero(logits[:end].reshape(rows, width)[reached] >= bound), width)
    return np.concatenate([reached[row] * width + column, end + np.flatnonzero(logits[end:] >= bound)])


def heaviest(keys: NDArray[np.floating[Any]], mass: NDArray[np.float64], goal: float) -> NDArray[np.bool_]:
    """Which elements are the fewest, largest keys first, whose mass reaches `goal`; at least one.

    keys: finite wherever there is mass, and only elements with mass are chosen. The lower index comes first on ties.
    Only keys around the cut are sorted: a histogram finds it, then one of the bin with the cut in it, and so on.
    """
    chosen = np.zeros(mass.size, np.bool_)
    index = np.flatnonzero(mass)
    keys, mass = keys[index].astype(np.float64), mass[index]
    while index.size > _SORTED and (span := keys.max() - keys.min()) > 0:
        bins = ((keys.max() - keys) / span * (_SORTED - 1)).astype(np.int32)
        reached = np.cumsum(np.bincount(bins, mass))
        cut = min(int(reached.searchsorted(goal)), reached.size - 1)
        chosen[index] = bins < cut
        goal -= float(reached[cut - 1]) if cut else 0.0
        inside = np.flatnonzero(bins == cut)
        index, keys, mass = index[inside], keys[inside], mass[inside]
    # More than a few are left only if they are equal, and then they are in order.
    if index.size <= _SORTED:
        order = np.argsort(-keys, kind="stable")
        index, mass = index[order], mass[order]
    chosen[index[: int(np.cumsum(mass).searchsorted(goal)) + 1]] = True
    return chosen


def entropy(mass: NDArray[np.float64]) -> float:
    """Entropy in nats of the distribution that is proportional to `mass`."""
    total = float(mass.sum())
    some = mass[mass > 0]
    return math.log(total) - float((some * np.log(some)).sum()) / total
