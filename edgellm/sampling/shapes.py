"""The steps that change how probabilities relate, by the same rule for every token."""

import math

import numpy as np

from edgellm.sampling.candidates import Candidates, entropy, weights

COLDEST = 1e-5
"""Below this temperature a softmax is an argmax in all but name, only that it would still toss coins between ties."""

# The shape of adaptive-p, as its authors fixed it.
_PEAK = 5.0
_SHARPNESS = 10.0
_WIDTH = 0.3


def temperature(candidates: Candidates, t: float) -> Candidates:
    """Divide the logits by t, at least `COLDEST`, relative to the largest one."""
    logits = candidates.logits.astype(np.float64)
    logits -= logits.max()
    logits /= max(t, COLDEST)
    return candidates.rescaled(logits)


def dynamic_temperature(candidates: Candidates, low: float, high: float, exponent: float) -> Candidates:
    """Divide the logits by a temperature that is low where the model is sure and high where all tokens are as likely.

    In between it follows (entropy / largest possible entropy) ^ exponent (Zhu et al.: EDT, 2024, as in koboldcpp).
    """
    possible = int(np.count_nonzero(candidates.logits > -math.inf))
    if possible < 2:
        return candidates
    share = min(max(entropy(weights(candidates.logits)) / math.log(possible), 0.0), 1.0)
    return temperature(candidates, low + (high - low) * share**exponent)


def adaptive_p(candidates: Candidates, target: float) -> Candidates:
    """Prefer tokens whose probability is near the target: quadratic around it, linear far away.

    https://github.com/ggml-org/llama.cpp/pull/17927. Ranks change, so the result has none.
    """
    mass = weights(candidates.logits)
    distance = np.abs(mass / mass.sum() - target) / _WIDTH
    logits = _PEAK - _SHARPNESS * distance * distance / (1.0 + distance)
    logits[np.isneginf(candidates.logits)] = -math.inf
    if not candidates.ranked:
        return candidates.rescaled(logits)
    order = np.argsort(candidates.ids)
    return Candidates(candidates.ids[order], logits[order])
