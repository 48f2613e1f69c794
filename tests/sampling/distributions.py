"""Logits to test with."""

import math
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgellm.sampling.candidates import Candidates

INF = math.inf


def logits_of(values: Sequence[float]) -> NDArray[np.float32]:
    return np.array(values, np.float32)


def of_probabilities(values: Sequence[float]) -> Candidates:
    return Candidates.all(np.log(np.array(values)).astype(np.float32))


def ranked(candidates: Candidates) -> Candidates:
    """The same candidates by falling logit, then by id."""
    return candidates.take(np.lexsort((candidates.ids, -candidates.logits)), ranked=True)


def distributions() -> st.SearchStrategy[NDArray[np.float32]]:
    """Vocabularies large enough for the column maxima, from peaked to flat, with many ties and impossible tokens."""

    def build(seed: int, size: int, spread: float, grain: float, holes: float) -> NDArray[np.float32]:
        rng = np.random.default_rng(seed)
        values = np.round(rng.standard_normal(size) * spread / grain) * grain
        values[rng.random(size) < holes] = -INF
        values[int(rng.integers(size))] = 0.0
        return values.astype(np.float32)

    return st.builds(
        build,
        st.integers(0, 2**32),
        st.integers(1, 9000),
        st.sampled_from([0.0, 0.1, 3.0, 30.0]),
        st.sampled_from([1e-6, 0.5, 5.0]),
        st.sampled_from([0.0, 0.5, 0.999]),
    )


def ranking(logits: NDArray[np.float32]) -> NDArray[np.int64]:
    """The definition: all possible tokens by falling logit, then by id."""
    order = np.lexsort((np.arange(logits.size), -logits))
    return order[np.isfinite(logits[order])]
