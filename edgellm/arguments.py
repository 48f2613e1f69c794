"""Checks of what callers pass: each names the argument, the value and what would be right."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any

from edgellm.errors import ArgumentError, VocabularyError

MAX_STOPS = 64


def integer(name: str, value: object, low: int, high: int | None = None) -> int:
    """Return `value` if it is an integer from `low` to `high`.  Raises ArgumentError."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        number = int(value)
        if low <= number and (high is None or number <= high):
            return number
    bound = f"of at least {low}" if high is None else f"from {low} to {high}"
    raise ArgumentError(f"{name} must be an integer {bound}, not {value!r}")


def choice(name: str, value: object, allowed: Sequence[str]) -> str:
    """Return `value` if it is one of `allowed`.  Raises ArgumentError."""
    if isinstance(value, str) and value in allowed:
        return value
    raise ArgumentError(f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r}")


def token_limit(value: object) -> int | None:
    """Return `max_tokens`: None and -1 mean no limit.  Raises ArgumentError."""
    limit = None if value is None else integer("max_tokens", value, -1)
    return None if limit == -1 else limit


def stop_strings(value: object) -> tuple[str, ...]:
    """Return `stop` as a tuple: None, one string or several.  Raises ArgumentError."""
    if value is None:
        return ()
    if isinstance(value, str):
        value = (value,)
    if isinstance(value, bytes | Mapping) or not isinstance(value, Iterable):
        raise ArgumentError(f"stop must be a string or a sequence of strings, not {value!r}")
    stops = tuple(value)
    if len(stops) > MAX_STOPS:
        raise ArgumentError(f"stop must have at most {MAX_STOPS} strings, not {len(stops)}")
    for stop in stops:
        if not isinstance(stop, str) or not stop:
            raise ArgumentError(f"stop must hold strings that are not empty, not {stop!r}")
    return stops


def logprob_count(name: str, value: object, n_vocab: int) -> int | None:
    """Return how many rivals to report, None where nothing is asked for.  Raises ArgumentError."""
    return None if value is None else integer(name, value, 0, n_vocab)


def functions(name: str, value: object) -> tuple[Callable[..., Any], ...]:
    """Return `value` as a tuple of functions.  Raises ArgumentError."""
    found = tuple(value) if isinstance(value, Iterable) else (value,)
    if not isinstance(value, Iterable) or not all(callable(function) for function in found):
        raise ArgumentError(f"{name} must be a sequence of functions, not {_shortened(value)}")
    return found


def token_list(name: str, value: object, n_vocab: int) -> list[int]:
    """Return token ids as a list of ints.

    Raises ArgumentError if `value` is no flat sequence of integers, VocabularyError for an id that does not exist.
    """
    import numpy as np

    try:
        ids = np.asarray(value)
    except (ValueError, OverflowError, TypeError):
        ids = np.empty(())
    if ids.ndim == 1 and ids.size == 0:
        return []
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise ArgumentError(f"{name} must be text or a sequence of token ids, not {_shortened(value)}")
    wrong = ids[(ids < 0) | (ids >= n_vocab)]
    if wrong.size:
        raise VocabularyError(f"{name}: token {wrong[0]} is outside of the vocabulary of {n_vocab}")
    found: list[int] = ids.tolist()
    return found


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
