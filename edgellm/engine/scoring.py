"""What is to become of the logits after each token of a prompt, or of the vectors they are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from edgellm.sampling import TokenLogprobs, logprobs

_BYTES = 4 << 20  # of the logits of one step, but at least those of
_ROWS = 16  # rows, or steps would read all weights for too little


class Scoring(Protocol):
    """Takes the rows of the first `n_rows` tokens of a prompt, a few rows at a time.

    Rows may come again after a preemption, with the same values.
    """

    n_rows: int
    most_rows: int
    """Rows that may come at a time."""
    embed: bool
    """Rows are embeddings, not logits; a step gives one or the other."""

    def take(self, start: int, logits: npt.NDArray[np.float32]) -> None:
        """Take the rows ``[n, n_vocab or n_embd_out]`` of the tokens from `start` on."""


class KeepLogits:
    """Keeps the rows themselves."""

    embed = False

    def __init__(self, n_rows: int, n_vocab: int) -> None:
        self.n_rows = self.most_rows = n_rows
        self.rows = np.empty((n_rows, n_vocab), np.float32)

    def take(self, start: int, logits: npt.NDArray[np.float32]) -> None:
        """Copy the rows."""
        self.rows[start : start + len(logits)] = logits


class KeepVectors:
    """Keeps the embeddings of the tokens `kept` of a prompt of `n_rows`."""

    embed = True

    def __init__(self, n_rows: int, kept: range, width: int) -> None:
        self.n_rows = self.most_rows = n_rows
        self._kept = kept
        self.rows = np.empty((len(kept), width), np.float32)

    def take(self, start: int, logits: npt.NDArray[np.float32]) -> None:
        """Copy those of the rows that are kept."""
        first, stop = max(start, self._kept.start), min(start + len(logits), self._kept.stop)
        if first < stop:
            self.rows[first - self._kept.start : stop - self._kept.start] = logits[first - start : stop - start]


class PromptLogprobs:
    """Keeps the log-probability of each token of the prompt and of its `top` strongest rivals: 12 bytes each."""

    embed = False

    def __init__(self, tokens: Sequence[int], n_vocab: int, top: int) -> None:
        self.n_rows = max(len(tokens) - 1, 0)
        self.most_rows = max(_BYTES // (4 * n_vocab), _ROWS)
        self._tokens = tuple(tokens)
        self._chosen = np.empty(self.n_rows)
        self._counts = np.zeros(self.n_rows, np.int32)
        self._ids = np.empty((self.n_rows, min(top, n_vocab)), np.int32)
        self._values = np.empty(self._ids.shape)
        self._done = 0

    def take(self, start: int, logits: npt.NDArray[np.float32]) -> None:
        """Reduce the rows.  Raises NumericalError for rows without probabilities."""
        for row, values in enumerate(logits, start):
            found = logprobs(values, self._tokens[row + 1], self._ids.shape[1])
            self._chosen[row] = found.logprob
            self._counts[row] = count = len(found.top)
            if count:
                self._ids[row, :count], self._values[row, :count] = zip(*found.top, strict=True)
        self._done = max(self._done, start + len(logits))

    def values(self) -> list[TokenLogprobs | None]:
        """Those known so far: None for the first token, which nothing predicts, then one for each further token."""
        found: list[TokenLogprobs | None] = [None] if self._tokens else []
        for row in range(self._done):
            count = int(self._counts[row])
            top = zip(self._ids[row, :count].tolist(), self._values[row, :count].tolist(), strict=True)
            found.append(TokenLogprobs(self._tokens[row + 1], float(self._chosen[row]), tuple(top)))
        return found
