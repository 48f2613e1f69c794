"""The settings of a sampler, checked once at the front door."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from edgellm.errors import ArgumentError
from edgellm.sampling import checks
from edgellm.sampling.shapes import COLDEST

LogitBias = Mapping[int, float] | Mapping[str, float] | Iterable[tuple[int, float]]

MAX_SEED = 2**64 - 1

SAMPLERS = (
    "penalties",
    "dry",
    "top_n_sigma",
    "top_k",
    "typical_p",
    "top_p",
    "min_p",
    "xtc",
    "temperature",
    "mirostat",
    "adaptive_p",
)
"""The steps that `SamplingParams.samplers` may put in order; this is the usual order."""

MIROSTAT_SAMPLERS = ("penalties", "dry", "temperature", "mirostat")
"""The usual order with Mirostat, which does what the other filters are for."""


class SamplingKeywords(TypedDict, total=False):
    """The fields of `SamplingParams` as keyword arguments, for type checkers."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    top_n_sigma: float
    xtc_probability: float
    xtc_threshold: float
    dynatemp_range: float
    dynatemp_exponent: float
    mirostat: int
    mirostat_tau: float
    mirostat_eta: float
    adaptive_target: float
    adaptive_decay: float
    repetition_penalty: float
    frequency_penalty: float
    presence_penalty: float
    penalty_last_n: int
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_last_n: int
    dry_breakers: Sequence[str]
    logit_bias: LogitBias | None
    samplers: Sequence[str] | None
    seed: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the next token is chosen. Every field is checked on construction; `ArgumentError` names what is wrong.

    The defaults are those of llama.cpp's tools, which the authors of GGUF files tune against.

    temperature: divides the logits; below 1e-5 the choice is greedy (the largest logit, the lowest id on ties).
    top_k: keep the k most likely tokens; 0, -1 or more than the vocabulary: keep all.
    top_p: keep the fewest tokens that together reach this probability, at least one; 1 keeps all.
    min_p: keep tokens at least this likely relative to the most likely one; 0 keeps all.
    typical_p: as top_p, but tokens whose surprise is nearest to the expected one come first; 1 keeps all.
    top_n_sigma: keep logits at most this many standard deviations below the largest one; 0 or -1 keeps all.
    xtc_probability, xtc_threshold: how often, out of 1, all tokens that reach the threshold but the least likely of
        them are excluded; probability 0 is off.
    dynatemp_range, dynatemp_exponent: the temperature goes from `temperature` - range, 0 at least, to `temperature` +
        range as (entropy / its maximum) ^ exponent goes from 0 to 1; range 0 is off.
    mirostat, mirostat_tau, mirostat_eta: 2 keeps the surprise of the text near tau bits by adapting how much surprise
        a token may have, at the rate eta; 0 is off. Unless `samplers` says otherwise, it replaces the other filters.
    adaptive_target, adaptive_decay: prefer tokens near this probability, so that the average over about
        1 / (1 - decay) tokens meets it; -1 is off.
    repetition_penalty: logits of recent tokens are divided by it if positive, multiplied if negative; 1 is off.
    frequency_penalty, presence_penalty: subtracted per recent occurrence, and once if the token is recent; 0 is off.
    penalty_last_n: how many tokens, prompt included, count as recent; -1 is the whole context, 0 turns penalties off.
    dry_multiplier, dry_base, dry_allowed_length: multiplier x base ^ (length - allowed_length) is subtracted from
        tokens that would lengthen a repetition of at least allowed_length tokens; multiplier 0 is off.
    dry_last_n: how many tokens, prompt included, are searched for repetitions; -1 is the whole context, 0 is off.
    dry_breakers: texts that no repetition reaches across.
    logit_bias: token id to a number added to its logit; -inf or False forbids the token. A mapping (keys may be
        decimal strings, as JSON has them) or pairs; kept as a tuple of (id, bias) pairs.
    samplers: the steps that run, in their order, out of `SAMPLERS`; None is the usual order. Whatever it says, masks
        of grammars and logit_bias come first, and a temperature below 1e-5 makes the choice greedy.
    seed: 0 to 2**64 - 1; None or -1 draws a fresh one.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    top_n_sigma: float = 0.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    adaptive_target: float = -1.0
    adaptive_decay: float = 0.9
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    penalty_last_n: int = 64
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_last_n: int = -1
    dry_breakers: Sequence[str] = ("\n", ":", '"', "*")
    logit_bias: LogitBias | None = None
    samplers: Sequence[str] | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        for name, (low, high) in _REALS.items():
            self._settle(name, checks.real(name, getattr(self, name), low, high, above=name in _ABOVE))
        for name, (least, most) in _INTEGERS.items():
            self._settle(name, checks.integer(name, getattr(self, name), least, most))
        if self.mirostat == 1:
            raise ArgumentError("mirostat must be 0 (off) or 2 (version 2), not 1: there is no version 1 here")
        self._settle("dry_breakers", checks.texts("dry_breakers", self.dry_breakers, most=64, longest=40))
        self._settle("logit_bias", checks.bias_pairs(self.logit_bias))
        if self.samplers is not None:
            self._settle("samplers", checks.names("samplers", self.samplers, SAMPLERS))
        if self.seed is not None:
            self._settle("seed", checks.integer("seed", self.seed, -1, MAX_SEED))

    def _settle(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always chosen."""
        return self.temperature < COLDEST and self.dynatemp_range == 0.0

    @property
    def order(self) -> Sequence[str]:
        """The names of the steps, in order, those included whose settings are neutral."""
        if self.samplers is not None:
            return self.samplers
        return MIROSTAT_SAMPLERS if self.mirostat else SAMPLERS

    @property
    def penalizes(self) -> bool:
        """Whether any penalty has an effect."""
        neutral = (self.repetition_penalty, self.frequency_penalty, self.presence_penalty) == (1.0, 0.0, 0.0)
        return not neutral and self.penalty_last_n != 0 and "penalties" in self.order

    @property
    def breaks_repetition(self) -> bool:
        """Whether DRY has an effect."""
        return self.dry_multiplier > 0.0 and self.dry_last_n != 0 and "dry" in self.order


# Bounds that keep what is computed of them finite are as wide as anyone could wish; others are those of the meaning.
_REALS: dict[str, tuple[float, float]] = {
    "temperature": (0.0, math.inf),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "typical_p": (0.0, 1.0),
    "top_n_sigma": (-1.0, math.inf),
    "xtc_probability": (0.0, 1.0),
    "xtc_threshold": (0.0, 1.0),
    "dynatemp_range": (0.0, 1e6),
    "dynatemp_exponent": (0.0, math.inf),
    "mirostat_tau": (0.0, 1000.0),
    "mirostat_eta": (0.0, 100.0),
    "adaptive_target": (-1.0, 1.0),
    "adaptive_decay": (0.0, 0.99),
    "repetition_penalty": (0.0, math.inf),
    "frequency_penalty": (-100.0, 100.0),
    "presence_penalty": (-100.0, 100.0),
    "dry_multiplier": (0.0, math.inf),
    "dry_base": (1.0, math.inf),
}
_ABOVE = ("repetition_penalty",)
_INTEGERS: dict[str, tuple[int, int | None]] = {
    "top_k": (-1, None),
    "mirostat": (0, 2),
    "penalty_last_n": (-1, None),
    "dry_allowed_length": (1, None),
    "dry_last_n": (-1, None),
}
