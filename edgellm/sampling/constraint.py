"""What lets a grammar, a schema or a protocol decide which tokens may come next."""

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edgellm.errors import EdgeLLMError, GrammarError

Mask = NDArray[np.uint32] | None
Submit = Callable[[Callable[[], Mask]], Future[Mask]]
"""Runs a function in another thread, as `concurrent.futures.Executor.submit` does."""


class Constraint(Protocol):
    """The tokens that may come next in one sequence, as far as they are known from what has come.

    One sequence has one constraint. `mask` and `advance` are never called at the same time, but `mask` usually runs in
    another thread, beside the model's own work. What they raise ends that sequence and no other: a GrammarError as
    it is, anything else as the cause of one.
    """

    @property
    def finished(self) -> bool:
        """Whether the text is complete and nothing but an end could follow: no further token is then asked for."""

    @property
    def error(self) -> EdgeLLMError | None:
        """Why the constraint cannot go on, None while it can. It ends the sequence as if it had been raised."""

    def mask(self) -> Mask:
        """The tokens allowed next, one bit per id, lowest bit first; None allows everything.

        Ids beyond the last word are forbidden. Where the text may end, the mask has the model's end tokens.
        """

    def advance(self, token: int) -> None:
        """Take the next token of the sequence, be it one of the mask's or an end token."""


class Guard:
    """A constraint as the sampler uses it: its masks may be prepared ahead, its errors are ours."""

    def __init__(self, constraint: Constraint) -> None:
        self._constraint = constraint
        self._prepared: Future[Mask] | None = None

    @property
    def finished(self) -> bool:
        """See `Constraint.finished`."""
        return self._constraint.finished

    def prepare(self, submit: Submit) -> None:
        """Begin to compute the next mask in another thread, unless that has begun."""
        if self._prepared is None:
            # No thread can be had any more where the interpreter is about to leave: `mask` then does the work.
            with suppress(RuntimeError):
                self._prepared = submit(self._constraint.mask)

    def mask(self) -> Mask:
        """The next mask: the prepared one, or computed now. Raises GrammarError."""
        try:
            mask = self._constraint.mask() if self._prepared is None else self._prepared.result()
        except Exception as error:
            raise _ours(error) from error
        self._check()
        return mask

    def advance(self, token: int) -> None:
        """Take the next token. Raises GrammarError."""
        self._prepared = None
        try:
            self._constraint.advance(token)
        except Exception as error:
            raise _ours(error) from error
        self._check()

    def _check(self) -> None:
        if self._constraint.error is not None:
            raise self._constraint.error


def _ours(error: Exception) -> EdgeLLMError:
    if isinstance(error, EdgeLLMError):
        return error
    return GrammarError(f"the constraint on the text failed: {type(error).__name__}: {error}")
