"""The steps that take tokens out of play. None of them takes the last possible one."""

import math

import numpy as np

from edgellm.sampling.candidates import Candidates, entropy, heaviest, largest, weights

_FEW = 64


def top_k(candidates: Candidates, k: int) -> Candidates:
    """Keep the k largest logits, ranked."""
    if candidates.ranked:
        return candidates.head(k)
    return candidates.take(largest(candidates.logits, k), ranked=True)


def top_p(candidates: Candidates, p: float) -> Candidates:
    """Keep the fewest most likely tokens that together reach probability p; at least one (Holtzman et al., 2019)."""
    mass = weights(candidates.logits)
    if not candidates.ranked:
        goal = p * float(mass.sum())
        # A few dozen tokens usually have the mass; where they cannot, as none weighs more than 1, or do not, ranking
        # as many as it takes would not be worth its price.
        ranked = top_k(candidates, _FEW) if goal < _FEW else None
        if ranked is None or (few := weights(ranked.logits)).sum() < goal:
            return candidates.take(heaviest(candidates.logits, mass, goal))
        return ranked.head(int(np.cumsum(few).searchsorted(goal)) + 1)
    reached = np.cumsum(mass)
    return candidates.head(int(reached.searchsorted(p * reached[-1])) + 1)


def min_p(candidates: Candidates, p: float) -> Candidates:
    """Keep tokens at least p times as likely as the most likely one, 0 < p <= 1 (Nguyen et al., 2024)."""
    return candidates.take(candidates.logits >= float(candidates.logits.max()) + math.log(p))


def typical_p(candidates: Candidates, p: float) -> Candidates:
    """Keep the fewest tokens that together reach probability p, those first whose surprise is nearest to the expected
    one, the entropy; at least one (Meister et al.: Locally Typical Sampling, 2022)."""
    mass = weights(candidates.logits)
    total = float(mass.sum())
    with np.errstate(divide="ignore"):
        surprise = math.log(total) - np.log(mass)
    return candidates.take(heaviest(-np.abs(surprise - entropy(mass)), mass, p * total))


def top_n_sigma(candidates: Candidates, n: float) -> Candidates:
    """Keep logits at most n standard deviations below the largest one (Tang et al.: Top-nσ, 2024)."""
    wide = candidates.logits.astype(np.float64)
    possible = wide[wide > -math.inf]
    return candidates.take(wide >= float(possible.max()) - n * float(possible.std()))


def xtc(candidates: Candidates, probability: float, threshold: float, uniform: float) -> Candidates:
    """With the given probability, decided by `uniform`, exclude the top choices: of all tokens that reach the
    threshold keep the least likely one only (p-e-w: XTC, 2024,
    https://github.com/oobabooga/text-generation-webui/pull/6335).
    """
    if uniform >= probability:
        return candidates
    mass = weights(candidates.logits)
    top = np.flatnonzero((mass >= threshold * float(mass.sum())) & (mass > 0))
    if top.size < 2:
        return candidates
    # Of equals the last one in the ranking stays, which is the one with the highest id.
    least = top[mass[top] == mass[top].min()]
    keep = np.ones(mass.size, np.bool_)
    keep[top] = False
    keep[least[candidates.ids[least].argmax()]] = True
    return candidates.take(keep)


def mirostat(candidates: Candidates, limit: float) -> Candidates:
    """Keep tokens whose surprise, in bits, is within the limit; at least the most likely one (Basu et al.: Mirostat,
    2020, version 2)."""
    mass = weights(candidates.logits)
    bound = min(math.log(float(mass.sum())) - limit * math.log(2), 0.0)
    return candidates.take(mass >= max(math.exp(bound), np.nextafter(0.0, 1.0)))
