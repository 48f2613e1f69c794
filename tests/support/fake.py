"""An Executable that computes nothing but remembers everything: which token lies in which slot of which page.

What it predicts is a plain function of the history it finds in the pages, so a page that is lost, mixed up or
written by two sequences shows as a wrong token or a failed assertion.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from edgellm.backends.base import PAGE, Batch, CompileOptions, Segment, Weight
from edgellm.errors import CancelledError
from edgellm.program import Program

Rule = Callable[[list[int]], int]
"""From the tokens seen by the last row to the id that follows."""


def script(ids: Sequence[int], after: int) -> Rule:
    """Say `ids`, one after the other, once the prompt of `after` tokens is over; then begin again."""
    return lambda history: ids[(len(history) - after) % len(ids)]


def hashed(n_vocab: int = 32) -> Rule:
    """A token that depends on every token before it."""
    return lambda history: crc32(np.array(history, np.int32).tobytes()) % n_vocab


class FakeExecutable:
    """Predicts by `rule`: its id gets the logit `peak`, all others 0.  A step takes `delay` s, unless cancelled."""

    def __init__(
        self,
        rule: Rule,
        *,
        n_vocab: int = 32,
        n_pages: Sequence[int] = (64,),
        windows: Sequence[int | None] = (None,),
        delay: float = 0.0,
        peak: float = 1.0,
    ) -> None:
        self.rule = rule
        self.n_vocab = n_vocab
        self.windows = windows
        self.delay = delay
        self.peak = peak
        self.threads = 1
        self.cells = [[[(-1, -1)] * PAGE for _ in range(n)] for n in n_pages]
        """Group, page, slot → (token, position)."""
        self.steps = 0
        self.rows: list[list[tuple[int, int]]] = []
        """Per step, (start, n_rows) of each segment."""
        self.fail: Callable[[Batch], None] = lambda batch: None
        """Called first in every step; may raise."""
        self.gate = threading.Event()
        self.gate.set()
        """Cleared, it holds every step until it is set again or the step is cancelled."""
        self.entered = threading.Event()
        """Set whenever a step begins."""
        self.cancels = 0
        self.closed = 0
        self._cancelled = threading.Event()

    def step(self, batch: Batch) -> npt.NDArray[np.float32]:
        assert not self.closed
        self._cancelled.clear()
        self.entered.set()
        self.steps += 1
        self.rows.append([(s.start, s.n_rows) for s in batch.segments])
        self.fail(batch)
        while not self.gate.is_set() or self.delay:
            if self._cancelled.wait(self.delay or 0.001):
                raise CancelledError("the step was cancelled")
            if self.gate.is_set():
                break
        self._store(batch)
        logits = np.zeros((len(batch.wanted), self.n_vocab), np.float32)
        wanted = set(batch.wanted.tolist())
        row = found = 0
        for segment in batch.segments:
            for position in range(segment.start, segment.start + segment.n_rows):
                if row in wanted:
                    logits[found, self.rule(self._seen(segment, position))] = self.peak
                    found += 1
                row += 1
        return logits

    def _store(self, batch: Batch) -> None:
        taken: set[tuple[int, int, int]] = set()
        tokens = iter(batch.tokens.tolist())
        for segment in batch.segments:
            for position in range(segment.start, segment.start + segment.n_rows):
                token = next(tokens)
                for group, pages in enumerate(segment.pages):
                    slot = (group, int(pages[position // PAGE]), position % PAGE)
                    assert slot not in taken, "two rows write to one slot"
                    assert slot[1] >= 0
                    taken.add(slot)
                    self.cells[group][slot[1]][slot[2]] = (token, position)

    def _seen(self, segment: Segment, position: int) -> list[int]:
        """The tokens that a query sees, the longest of all groups; every group must agree."""
        found: list[int] = []
        for group, (window, pages) in enumerate(zip(self.windows, segment.pages, strict=True)):
            first = 0 if window is None else max(0, position - window + 1)
            cells = [self.cells[group][pages[p // PAGE]][p % PAGE] for p in range(first, position + 1)]
            assert [at for _, at in cells] == list(range(first, position + 1)), "keys are not where they belong"
            seen = [token for token, _ in cells]
            assert not found or found[-len(seen) :] == seen
            found = found or seen
        return found

    def copy_pages(self, group: int, pairs: Sequence[tuple[int, int]]) -> None:
        for source, target in pairs:
            self.cells[group][target] = self.cells[group][source].copy()

    def rotate_keys(self, group: int, pages: Sequence[int], delta: int) -> None:
        for page in pages:
            self.cells[group][page] = [(token, at + delta) for token, at in self.cells[group][page]]

    def copy_states(self, pairs: Sequence[tuple[int, int]]) -> None:
        raise AssertionError("there are no recurrent states")

    def cancel(self) -> None:
        self.cancels += 1
        self._cancelled.set()

    def close(self) -> None:
        self.closed += 1


class FakeBackend:
    """Compiles any program to a FakeExecutable that is quite sure of what it says."""

    name = "fake"

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.executable: FakeExecutable

    def compile(self, program: Program, weights: Mapping[str, Weight], options: CompileOptions) -> Any:
        self.executable = FakeExecutable(
            self.rule, n_vocab=program.n_vocab, n_pages=options.n_pages, windows=program.windows, peak=100.0
        )
        return self.executable
