"""A constraint given by a plain function of the tokens so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from edgellm.errors import EdgeLLMError


def bits(ids: Iterable[int], n_bits: int) -> npt.NDArray[np.uint32]:
    """The mask that allows `ids`, in as few words as hold `n_bits`."""
    allowed = np.zeros(-(-n_bits // 32) * 32, np.bool_)
    allowed[list(ids)] = True
    return np.packbits(allowed, bitorder="little").view("<u4").astype(np.uint32)


class Rules:
    """Allows what `rule` returns for the tokens accepted so far, None for everything; complete after `length`."""

    def __init__(
        self,
        rule: Callable[[list[int]], Iterable[int] | None],
        n_vocab: int = 32,
        *,
        length: int | None = None,
    ) -> None:
        self.rule = rule
        self.n_vocab = n_vocab
        self.length = length
        self.seen: list[int] = []
        self.error: EdgeLLMError | None = None
        self.masks = 0

    @property
    def finished(self) -> bool:
        return self.length is not None and len(self.seen) >= self.length

    def mask(self) -> npt.NDArray[np.uint32] | None:
        self.masks += 1
        allowed = self.rule(self.seen)
        return None if allowed is None else bits(allowed, self.n_vocab)

    def advance(self, token: int) -> None:
        self.seen.append(token)
