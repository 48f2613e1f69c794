"""The steps that change some logits. They leave every candidate in play, and finite logits finite.

Only `allow`, and a bias of -inf, make tokens impossible.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgellm.errors import ArgumentError
from edgellm.sampling.candidates import Candidates

_LARGEST = float(np.finfo(np.float32).max)


def allow(candidates: Candidates, mask: NDArray[np.uint32]) -> Candidates | None:
    """Leave the tokens in play whose bits are set; None if there are none. Needs the whole vocabulary.

    mask: uint32 words, one bit per token, lowest bit first. Tokens beyond its end are forbidden; it may also be longer
    than the vocabulary. Raises ArgumentError for another type or shape.
    """
    if mask.dtype != np.uint32 or mask.ndim != 1:
        raise ArgumentError(f"a mask must be uint32 words, not {mask.dtype}{list(mask.shape)}")
    octets = np.ascontiguousarray(mask, "<u4").view(np.uint8)
    allowed = np.unpackbits(octets, count=candidates.ids.size, bitorder="little").view(np.bool_)
    count = np.count_nonzero(allowed)
    if not count:
        return None
    # Few tokens make every later step quick; gathering many costs more than it saves.
    if count * 8 < allowed.size:
        return candidates.take(np.flatnonzero(allowed))
    return candidates.rescaled(np.where(allowed, candidates.logits, np.float32(-math.inf)))


def logit_bias(candidates: Candidates, ids: NDArray[np.int64], bias: NDArray[np.float64]) -> Candidates:
    """Add bias[j] to the logit of token ids[j]; ids are distinct. A bias of -inf forbids a token."""
    at, there = candidates.find(ids)
    added = bias[there]
    logits = candidates.logits[at] + added
    return _edited(candidates, at, np.where(np.isneginf(added), added, _finite(logits, candidates.logits[at])))


def penalties(
    candidates: Candidates,
    ids: NDArray[np.int64],
    counts: NDArray[np.int64],
    repetition: float,
    frequency: float,
    presence: float,
) -> Candidates:
    """Make tokens less likely that occurred: ids[j] counts[j] times.

    repetition divides positive logits and multiplies negative ones (Keskar et al.: CTRL, 2019, with the sign
    corrected as everywhere since); then count x frequency + presence is subtracted, as OpenAI defines them.
    """
    at, there = candidates.find(ids)
    if at.size == 0:
        return candidates
    old = candidates.logits[at].astype(np.float64)
    with np.errstate(over="ignore"):
        new = np.where(old > 0, old / repetition, old * repetition)
    return _edited(candidates, at, _finite(new - (counts[there] * frequency + presence), old))


def dry(
    candidates: Candidates,
    ids: NDArray[np.int64],
    lengths: NDArray[np.int64],
    multiplier: float,
    base: float,
    allowed_length: int,
) -> Candidates:
    """Make tokens less likely that would lengthen a repetition: ids[j] one of lengths[j] tokens.

    The penalty is multiplier x base ^ (length - allowed_length), nothing below that length (p-e-w: DRY, 2024,
    https://github.com/oobabooga/text-generation-webui/pull/5677).
    """
    at, there = candidates.find(ids)
    excess = lengths[there] - allowed_length
    at, excess = at[excess >= 0], excess[excess >= 0]
    if at.size == 0:
        return candidates
    old = candidates.logits[at].astype(np.float64)
    with np.errstate(over="ignore"):
        penalty = multiplier * np.minimum(np.power(base, excess.astype(np.float64)), _LARGEST)
    return _edited(candidates, at, _finite(old - penalty, old))


def _finite(new: NDArray[np.float64], old: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Values too large for float32 end at its largest number; what was impossible stays so."""
    return np.where(np.isneginf(old), -math.inf, np.clip(new, -_LARGEST, _LARGEST))


def _edited(candidates: Candidates, at: NDArray[np.int64], values: NDArray[np.float64]) -> Candidates:
    """Replace some logits. Ranks are lost with that."""
    logits = candidates.logits.copy()
    logits[at] = values
    if not candidates.ranked:
        return candidates.rescaled(logits)
    order = np.lexsort((candidates.ids, -logits))
    return Candidates(candidates.ids[order], logits[order], ranked=True)
