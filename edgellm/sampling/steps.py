"""The steps of sampling: small pure functions from candidates to candidates.

No step sorts the vocabulary. Ties are always broken towards the lower token id, so results do not depend on how
a library orders equal values.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgellm.errors import ArgumentError
from edgellm.sampling.history import TokenWindow

_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Candidates:
    """The tokens still in play and their logits.

    ids: int64[n]; logits: float32[n], float64[n] after `temperature`.
    ranked: True: by falling logit, the lower id first on ties. False: by rising id.
    """

    ids: NDArray[np.int64]
    logits: NDArray[np.floating[Any]]
    ranked: bool = False

    @classmethod
    def all(cls, logits: NDArray[np.float32]) -> "Candidates":
        """Every token of the vocabulary: id i has logits[i]."""
        return cls(_all_ids(logits.size), logits)

    def take(self, index: NDArray[Any], *, ranked: bool) -> "Candidates":
        """The candidates at `index`, an integer or boolean array."""
        return Candidates(self.ids[index], self.logits[index], ranked)

    def head(self, count: int) -> "Candidates":
        """The first `count` candidates."""
        return Candidates(self.ids[:count], self.logits[:count], self.ranked)


@lru_cache(maxsize=4)
def _all_ids(n_vocab: int) -> NDArray[np.int64]:
    ids = np.arange(n_vocab)
    ids.flags.writeable = False
    return ids


def logit_bias(candidates: Candidates, ids: NDArray[np.int64], bias: NDArray[np.float64]) -> Candidates:
    """Add bias[j] to the logit of token ids[j]. Needs every token in play; ids are distinct."""
    return _edit(candidates, ids, candidates.logits[ids].astype(np.float64) + bias)


def penalties(
    candidates: Candidates, window: TokenWindow, repetition: float, frequency: float, presence: float
) -> Candidates:
    """Make the tokens of `window` less likely. Needs every token in play.

    repetition divides positive logits and multiplies negative ones (Keskar et al.: CTRL, 2019, with the sign
    corrected as everywhere since); then count x frequency + presence is subtracted, as OpenAI defines them.
    """
    ids, counts = window.counts()
    if ids.size == 0:
        return candidates
    logits = candidates.logits[ids].astype(np.float64)
    with np.errstate(over="ignore"):
        logits = np.where(logits > 0, logits / repetition, logits * repetition)
    return _edit(candidates, ids, logits - (counts * frequency + presence))


def _edit(candidates: Candidates, ids: NDArray[np.int64], values: NDArray[np.float64]) -> Candidates:
    """Replace some logits. Settings too large for float32 end at its largest number, or at -inf."""
    logits = candidates.logits.copy()
    with np.errstate(over="ignore"):
        logits[ids] = np.minimum(values, _LARGEST)
    return Candidates(candidates.ids, logits)


def allow(candidates: Candidates, mask: NDArray[np.uint32]) -> Candidates:
    """Forbid (logit -inf) the tokens whose bits are not set. Needs every token in play.

    mask: uint32 words, one bit per token, lowest bit first. Tokens beyond its end are forbidden; it may also be longer
    than the vocabulary. Raises ArgumentError for another type or shape.
    """
    if mask.dtype != np.uint32 or mask.ndim != 1:
        raise ArgumentError(f"a mask must be uint32 words, not {mask.dtype}{list(mask.shape)}")
    octets = np.ascontiguousarray(mask, "<u4").view(np.uint8)
    allowed = np.unpackbits(octets, count=candidates.ids.size, bitorder="little").view(np.bool_)
    return Candidates(candidates.ids, np.where(allowed, candidates.logits, np.float32(-math.inf)))


def top_k(candidates: Candidates, k: int) -> Candidates:
    """Keep the k largest logits, ranked."""
    if candidates.ranked:
        return candidates.head(k)
    return candidates.take(largest(candidates.logits, k), ranked=True)


def top_p(candidates: Candidates, p: float) -> Candidates:
    """Keep the fewest most likely tokens that together reach probability p; at least one (Holtzman et al., 2019)."""
    shares = weights(candidates.logits)
    goal = p * float(shares.sum())
    ranked = candidates
    if not candidates.ranked:
        # A few dozen tokens usually carry the mass; only where they do not, find out how many must be ranked.
        ranked = top_k(candidates, 64)
        if weights(ranked.logits).sum() < goal:
            bulk = candidates.take(_bulk(candidates.logits, shares, goal), ranked=False)
            ranked = top_k(bulk, bulk.ids.size)
    mass = np.cumsum(weights(ranked.logits))
    return ranked.head(int(mass.searchsorted(goal)) + 1)


def _bulk(logits: NDArray[np.floating[Any]], shares: NDArray[np.float64], goal: float) -> NDArray[np.int64]:
    """Indices of the most likely tokens that together have a share of `goal`, and of few more: a histogram by logit."""
    with np.errstate(over="ignore"):
        depth = np.minimum((logits.max() - logits) * 16, 1024).astype(np.int64)
    mass = np.cumsum(np.bincount(depth, shares))
    return np.flatnonzero(depth <= mass.searchsorted(goal))


def min_p(candidates: Candidates, p: float) -> Candidates:
    """Keep tokens at least p times as likely as the most likely one, 0 < p <= 1 (Nguyen et al., 2024)."""
    bound = float(candidates.logits.max()) + math.log(p)
    return candidates.take(candidates.logits >= bound, ranked=candidates.ranked)


def temperature(candidates: Candidates, t: float) -> Candidates:
    """Divide the logits by t > 0, relative to the largest one."""
    logits = candidates.logits.astype(np.float64)
    logits -= logits.max()
    logits /= t
    return Candidates(candidates.ids, logits, candidates.ranked)


def greedy(candidates: Candidates) -> int:
    """The token with the largest logit, the lowest id on ties."""
    return int(candidates.ids[candidates.logits.argmax()])


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
    index = np.flatnonzero(logits >= _floor(logits, k))
    values = logits[index]
    if index.size > 2 * k + 64:
        kth = np.partition(values, index.size - k)[index.size - k]
        keep = values > kth
        keep[np.flatnonzero(values == kth)[: k - np.count_nonzero(keep)]] = True
        index, values = index[keep], values[keep]
    return index[np.argsort(-values, kind="stable")[:k]]


def _floor(logits: NDArray[np.floating[Any]], k: int) -> float:
    """A finite number that the k largest finite logits reach, and usually few more.

    The k-th largest of the column maxima: one vectorized pass instead of a partition of the vocabulary.
    """
    lowest = float(np.finfo(logits.dtype).min)
    columns = max(512, 4 * k)
    rows = logits.size // columns
    if rows < 4:
        return lowest
    peaks = logits[: rows * columns].reshape(rows, columns).max(axis=0)
    return max(lowest, float(np.partition(peaks, columns - k)[columns - k]))


def weights(logits: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Probabilities up to a common factor: float64, the largest is 1."""
    wide = logits.astype(np.float64)
    wide -= wide.max()
    with np.errstate(under="ignore"):
        np.exp(wide, out=wide)
    return wide
