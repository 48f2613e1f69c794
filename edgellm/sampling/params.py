"""The settings of a sampler, checked once at the front door."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TypedDict

from edgellm.errors import ArgumentError

LogitBias = Mapping[int, float] | Mapping[str, float] | Iterable[tuple[int, float]]

# Below this a softmax is an argmax in all but name, except that it would still toss a coin between ties.
GREEDY_BELOW = 1e-5
MAX_SEED = 2**64 - 1


class SamplingKeywords(TypedDict, total=False):
    """The fields of `SamplingParams` as keyword arguments, for type checkers."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    frequency_penalty: float
    presence_penalty: float
    penalty_last_n: int
    logit_bias: LogitBias | None
    seed: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the next token is chosen. Every field is checked on construction; `ArgumentError` names what is wrong.

    The defaults are those of llama.cpp's tools, which the authors of GGUF files tune against.

    temperature: divides the logits; below 1e-5 the choice is greedy (the largest logit, the lowest id on ties).
    top_k: keep the k most likely tokens; 0, -1 or more than the vocabulary: keep all.
    top_p: keep the fewest tokens that together reach this probability, at least one; 1 keeps all.
    min_p: keep tokens at least this likely relative to the most likely one; 0 keeps all.
    repetition_penalty: logits of recent tokens are divided by it if positive, multiplied if negative; 1 is off.
    frequency_penalty, presence_penalty: subtracted per recent occurrence, and once if the token is recent; 0 is off.
    penalty_last_n: how many tokens, prompt included, count as recent; -1 is the whole context, 0 turns penalties off.
    logit_bias: token id to a number added to its logit; -inf or False forbids the token. A mapping (keys may be
        decimal strings, as JSON has them) or pairs; kept as a tuple of (id, bias) pairs.
    seed: 0 to 2**64 - 1; None or -1 draws a fresh one.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    penalty_last_n: int = 64
    logit_bias: LogitBias | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        settle = object.__setattr__
        settle(self, "temperature", _real("temperature", self.temperature, 0.0))
        settle(self, "top_k", _integer("top_k", self.top_k, -1))
        settle(self, "top_p", _real("top_p", self.top_p, 0.0, 1.0))
        settle(self, "min_p", _real("min_p", self.min_p, 0.0, 1.0))
        settle(self, "repetition_penalty", _real("repetition_penalty", self.repetition_penalty, 0.0, above=True))
        # Bounded so that count x penalty stays finite for any history.
        settle(self, "frequency_penalty", _real("frequency_penalty", self.frequency_penalty, -100.0, 100.0))
        settle(self, "presence_penalty", _real("presence_penalty", self.presence_penalty, -100.0, 100.0))
        settle(self, "penalty_last_n", _integer("penalty_last_n", self.penalty_last_n, -1))
        settle(self, "logit_bias", _bias_pairs(self.logit_bias))
        if self.seed is not None:
            settle(self, "seed", _integer("seed", self.seed, -1, MAX_SEED))

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always chosen."""
        return self.temperature < GREEDY_BELOW

    @property
    def penalizes(self) -> bool:
        """Whether any penalty has an effect."""
        neutral = (self.repetition_penalty, self.frequency_penalty, self.presence_penalty) == (1.0, 0.0, 0.0)
        return not neutral and self.penalty_last_n != 0


def _real(name: str, value: object, low: float, high: float = math.inf, *, above: bool = False) -> float:
    """`value` as a finite float of [low, high]; `above` excludes `low` itself."""
    number = math.nan
    if isinstance(value, Real) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
    if not math.isfinite(number) or not low <= number <= high or (above and number == low):
        bound = f"{'above' if above else 'from'} {low:g}" + (f" to {high:g}" if high < math.inf else "")
        raise ArgumentError(f"{name} must be a finite number {bound}, not {value!r}")
    return number


def _integer(name: str, value: object, low: int, high: int | None = None) -> int:
    """`value` as an int of [low, high]."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        number = int(value)
        if low <= number and (high is None or number <= high):
            return number
    bound = f"from {low}" + (f" to {high}" if high is not None else "")
    raise ArgumentError(f"{name} must be an integer {bound}, not {value!r}")


def _bias_pairs(bias: object) -> tuple[tuple[int, float], ...]:
    if bias is None:
        return ()
    entries: Iterable[object]
    if isinstance(bias, Mapping):
        entries = bias.items()
    elif isinstance(bias, Iterable) and not isinstance(bias, str | bytes):
        entries = bias
    else:
        raise ArgumentError(f"logit_bias must be a mapping of token ids to numbers, or pairs of both, not {bias!r}")
    pairs: dict[int, float] = {}
    for entry in entries:
        if not isinstance(entry, tuple | list) or len(entry) != 2:
            raise ArgumentError(f"logit_bias must hold pairs of a token id and a number, not {entry!r}")
        token = _bias_token(entry[0])
        if token in pairs:
            raise ArgumentError(f"logit_bias names token {token} twice")
        pairs[token] = _bias_value(token, entry[1])
    return tuple(pairs.items())


def _bias_token(key: object) -> int:
    if isinstance(key, str) and key.isascii() and key.isdecimal() and len(key) < 20:
        return int(key)
    return _integer("logit_bias: a token id", key, 0)


def _bias_value(token: int, value: object) -> float:
    if value is False or (isinstance(value, Real) and value == -math.inf):
        return -math.inf
    return _real(f"logit_bias[{token}] (when not -inf or False)", value, -math.inf)
