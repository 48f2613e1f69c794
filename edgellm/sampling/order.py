"""The steps by their names: each setting becomes a function of the candidates, a neutral one none."""

from collections.abc import Callable
from functools import partial

import numpy as np

from edgellm.sampling import edits, filters, shapes
from edgellm.sampling.candidates import Candidates
from edgellm.sampling.memory import Memory
from edgellm.sampling.params import SamplingParams

Step = Callable[[Candidates], Candidates]
Maker = Callable[[SamplingParams, Memory], Step | None]

EDITS = ("penalties", "dry")
"""The steps that can change which token is the most likely one; a greedy choice needs no others."""


def chain(params: SamplingParams, memory: Memory) -> dict[str, Step]:
    """The steps that `params` asks for by their names, in order, those left out that would change nothing."""
    wanted = (name for name in params.order if name in EDITS or not params.greedy)
    return {name: step for name in wanted if (step := MAKERS[name](params, memory)) is not None}


def bias(params: SamplingParams) -> partial[Candidates] | None:
    """The step that adds `logit_bias`, which comes before all others."""
    pairs = dict(params.logit_bias or ())
    if not pairs:
        return None
    return partial(edits.logit_bias, ids=np.array(list(pairs), np.int64), bias=np.array(list(pairs.values())))


def _penalties(params: SamplingParams, memory: Memory) -> Step | None:
    if not params.penalizes:
        return None

    def step(candidates: Candidates) -> Candidates:
        ids, counts = memory.window.counts()
        settings = params.repetition_penalty, params.frequency_penalty, params.presence_penalty
        return edits.penalties(candidates, ids, counts, *settings)

    return step


def _dry(params: SamplingParams, memory: Memory) -> Step | None:
    repeats = memory.repeats
    if repeats is None:
        return None

    def step(candidates: Candidates) -> Candidates:
        ids, lengths = repeats.lengthened(params.dry_allowed_length)
        settings = params.dry_multiplier, params.dry_base, params.dry_allowed_length
        return edits.dry(candidates, ids, lengths, *settings)

    return step


def _top_n_sigma(params: SamplingParams, _memory: Memory) -> Step | None:
    return partial(filters.top_n_sigma, n=params.top_n_sigma) if params.top_n_sigma > 0.0 else None


def _top_k(params: SamplingParams, _memory: Memory) -> Step | None:
    k = params.top_k
    return (lambda found: filters.top_k(found, k) if k < found.ids.size else found) if k > 0 else None


def _typical_p(params: SamplingParams, _memory: Memory) -> Step | None:
    return partial(filters.typical_p, p=params.typical_p) if params.typical_p < 1.0 else None


def _top_p(params: SamplingParams, _memory: Memory) -> Step | None:
    return partial(filters.top_p, p=params.top_p) if params.top_p < 1.0 else None


def _min_p(params: SamplingParams, _memory: Memory) -> Step | None:
    return partial(filters.min_p, p=params.min_p) if params.min_p > 0.0 else None


def _xtc(params: SamplingParams, memory: Memory) -> Step | None:
    if params.xtc_probability == 0.0:
        return None
    return lambda found: filters.xtc(found, params.xtc_probability, params.xtc_threshold, memory.chance())


def _temperature(params: SamplingParams, _memory: Memory) -> Step | None:
    t, reach = params.temperature, params.dynatemp_range
    if reach > 0.0:
        low, high = max(t - reach, 0.0), t + reach
        return partial(shapes.dynamic_temperature, low=low, high=high, exponent=params.dynatemp_exponent)
    return partial(shapes.temperature, t=t) if t != 1.0 else None


def _mirostat(params: SamplingParams, memory: Memory) -> Step | None:
    if not params.mirostat:
        return None

    def step(candidates: Candidates) -> Candidates:
        memory.limited = filters.mirostat(candidates, memory.limit)
        return memory.limited

    return step


def _adaptive_p(params: SamplingParams, memory: Memory) -> Step | None:
    if params.adaptive_target < 0.0:
        return None

    def step(candidates: Candidates) -> Candidates:
        memory.unshaped = candidates
        return shapes.adaptive_p(candidates, memory.target())

    return step


MAKERS: dict[str, Maker] = {
    "penalties": _penalties,
    "dry": _dry,
    "top_n_sigma": _top_n_sigma,
    "top_k": _top_k,
    "typical_p": _typical_p,
    "top_p": _top_p,
    "min_p": _min_p,
    "xtc": _xtc,
    "temperature": _temperature,
    "mirostat": _mirostat,
    "adaptive_p": _adaptive_p,
}
