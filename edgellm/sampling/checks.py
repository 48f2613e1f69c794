"""Checks of the settings of a sampler: each names the setting, its value and what would be right."""

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real

from edgellm.errors import ArgumentError


def real(name: str, value: object, low: float, high: float = math.inf, *, above: bool = False) -> float:
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


def integer(name: str, value: object, low: int, high: int | None = None) -> int:
    """`value` as an int of [low, high]."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        number = int(value)
        if low <= number and (high is None or number <= high):
            return number
    bound = f"from {low}" + (f" to {high}" if high is not None else "")
    raise ArgumentError(f"{name} must be an integer {bound}, not {value!r}")


def names(name: str, value: object, allowed: Sequence[str]) -> tuple[str, ...]:
    """`value` as a tuple of distinct names out of `allowed`."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ArgumentError(f"{name} must be a sequence of names, not {value!r}")
    found = tuple(value)
    for one in found:
        if one not in allowed:
            raise ArgumentError(f"{name}: there is no {one!r}, there are {', '.join(allowed)}")
        if found.count(one) > 1:
            raise ArgumentError(f"{name} has {one!r} twice")
    return found


def texts(name: str, value: object, most: int, longest: int) -> tuple[str, ...]:
    """`value` as a tuple of texts that are neither empty nor too long."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise ArgumentError(f"{name} must be a sequence of strings, not {value!r}")
    found = tuple(value)
    if len(found) > most:
        raise ArgumentError(f"{name} must have at most {most} strings, not {len(found)}")
    for text in found:
        if not isinstance(text, str) or not 0 < len(text) <= longest:
            raise ArgumentError(f"{name} must hold strings of 1 to {longest} characters, not {text!r}")
    return found


def bias_pairs(bias: object) -> tuple[tuple[int, float], ...]:
    """`logit_bias` as distinct pairs of a token id and what is added to its logit."""
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
    return integer("logit_bias: a token id", key, 0)


def _bias_value(token: int, value: object) -> float:
    if value is False or (isinstance(value, Real) and value == -math.inf):
        return -math.inf
    return real(f"logit_bias[{token}] (when not -inf or False)", value, -math.inf)
