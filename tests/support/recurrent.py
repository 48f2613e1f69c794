"""An Executable whose only memory is the state in each slot: the tokens that have gone through it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from edgellm.backends.base import Batch
from edgellm.errors import CancelledError
from tests.support.fake import Rule


class StateExecutable:
    """Predicts by `rule` from the history it finds in a slot; a wrong, stale or half-made state cannot go unseen."""

    def __init__(self, rule: Rule, n_slots: int, n_vocab: int = 32) -> None:
        self.rule = rule
        self.n_vocab = n_vocab
        self.threads = 1
        self.slots: list[list[int]] = [[-1]] * n_slots
        self.rows = 0
        """Rows computed so far."""
        self.on_step: Callable[[Batch], None] = lambda batch: None
        """Called first in every step; may raise."""
        self.break_off = False
        """Make the next step end as a cancelled one, its states spoilt."""

    def step(self, batch: Batch) -> npt.NDArray[np.float32]:
        self.on_step(batch)
        slots = [segment.slot for segment in batch.segments]
        assert len(set(slots)) == len(slots)
        if self.break_off:
            self.break_off = False
            for slot in slots:
                self.slots[slot] = [-2]
            raise CancelledError("the step was cancelled")
        logits = np.zeros((len(batch.wanted), self.n_vocab), np.float32)
        found = {row: i for i, row in enumerate(batch.wanted.tolist())}
        row = 0
        for segment in batch.segments:
            history = [] if segment.start == 0 else self.slots[segment.slot]
            assert len(history) == segment.start, "the state is not that of the position"
            for _ in range(segment.n_rows):
                history = [*history, int(batch.tokens[row])]
                if row in found:
                    logits[found[row], self.rule(history)] = 1.0
                row += 1
            self.slots[segment.slot] = history
        self.rows += row
        return logits

    def copy_states(self, pairs: Sequence[tuple[int, int]]) -> None:
        for source, target in pairs:
            self.slots[target] = self.slots[source]

    def copy_pages(self, group: int, pairs: Sequence[tuple[int, int]]) -> None:
        """There is nothing in the pages."""

    def rotate_keys(self, group: int, pages: Sequence[int], delta: int) -> None:
        """There is nothing in the pages."""

    def cancel(self) -> None:
        """Steps are too short for that."""

    def close(self) -> None:
        """There is nothing to give back."""
