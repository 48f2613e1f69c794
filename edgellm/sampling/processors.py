"""The caller's own functions on logits."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edgellm.errors import ArgumentError, CallbackError

LogitsProcessor = Callable[[Sequence[int], NDArray[np.float32]], ArrayLike | None]
"""Takes all token ids so far, prompt included, and the logits after the last one: float32[n_vocab], a copy, which it
may change in place. Returns logits of the same shape, or None for those it was given."""


class Processors:
    """Runs functions on the logits, one after the other, and keeps the ids they want to see."""

    def __init__(self, functions: Sequence[LogitsProcessor], ids: Sequence[int]) -> None:
        self._functions = functions
        self._ids = list(ids)

    def accept(self, token: int) -> None:
        """Take the next token of the sequence."""
        self._ids.append(token)

    def apply(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """New logits. Raises CallbackError, with the cause, if a function does, ArgumentError if it returns none."""
        logits = logits.copy()
        for function in self._functions:
            name = getattr(function, "__name__", type(function).__name__)
            try:
                returned = function(list(self._ids), logits)
            except Exception as error:
                raise CallbackError(f"logits processor {name} failed: {type(error).__name__}: {error}") from error
            if returned is not None:
                logits = _checked(name, returned, logits.shape)
        return logits


def _checked(name: str, returned: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.float32]:
    try:
        with np.errstate(over="ignore"):
            logits = np.asarray(returned, np.float32)
    except (TypeError, ValueError):
        logits = np.empty((), np.float32)
    if logits.shape != shape:
        raise ArgumentError(f"logits processor {name} must return None or numbers of shape {shape}, not {returned!r}")
    return logits
