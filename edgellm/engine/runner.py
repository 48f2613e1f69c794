"""One step: the schedule becomes a batch, the batch logits, and the logits tokens."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from edgellm.backends.base import Batch, Executable, Segment
from edgellm.engine.request import Request, Vectors
from edgellm.engine.scheduler import Plan, Scheduler, Work
from edgellm.errors import BackendError, CancelledError, EdgeLLMError, OutOfMemoryError


def build_batch(works: Sequence[Work]) -> Batch:
    """Lay out the rows of `works` one after the other; wanted are rows to sample from and those of scored prompts.

    Either all works want vectors, or none does.
    """
    tokens: list[int] = []
    segments: list[Segment] = []
    wanted: list[int] = []
    for work in works:
        request, n = work.request, work.n_rows
        start = request.computed
        tokens += request.tokens[start : start + n]
        segments.append(Segment(start, n, work.pages, request.slot))
        if request.vectors is not None:
            wanted += (len(tokens) - n - start + row for row in _rows_of(work, request.vectors))
        elif request.logits is not None:
            wanted += range(len(tokens) - n, len(tokens))
        elif samples(work):
            wanted.append(len(tokens) - 1)
    embed = any(work.request.vectors is not None for work in works)
    return Batch(np.array(tokens, np.int32), segments, np.array(wanted, np.int32), embed)


def _rows_of(work: Work, vectors: Vectors) -> range:
    """Return those of the wanted rows that are among the work's."""
    start = work.request.computed
    rows = vectors.rows
    return range(max(rows.start, start), min(rows.stop, start + work.n_rows))


def samples(work: Work) -> bool:
    """Whether the last row of `work` is to be followed by a token."""
    request = work.request
    return work.n_rows == request.pending and request.sampler is not None and request.max_tokens != 0


class Runner:
    """Carries out plans on an Executable.  An error ends the requests it belongs to and no other."""

    def __init__(self, executable: Executable, scheduler: Scheduler) -> None:
        self._executable = executable
        self._scheduler = scheduler
        # One thread: masks take microseconds, and the cores are at work on the step.
        self._beside = ThreadPoolExecutor(1, "edgellm-masks")

    def close(self) -> None:
        """End the thread that works beside the steps."""
        self._beside.shutdown(cancel_futures=True)

    def run(self, plan: Plan) -> None:
        """Move pages as the plan says, then compute its rows and give every request its token."""
        for copy in plan.copies:
            self._executable.copy_pages(copy.group, copy.pairs)
        for turn in plan.turns:
            self._executable.rotate_keys(turn.group, turn.pages, turn.delta)
        if plan.states:
            self._executable.copy_states(plan.states)
        self._step([work for work in plan.works if work.request.vectors is None])
        self._step([work for work in plan.works if work.request.vectors is not None])

    def _step(self, works: Sequence[Work]) -> None:
        works = [work for work in works if not work.request.done]
        if not works:
            return
        batch = build_batch(works)
        for work in works:
            if work.request.sampler is not None and samples(work):
                work.request.sampler.prepare(self._beside.submit)
        try:
            logits = self._executable.step(batch)
        except CancelledError:
            # Nothing of this step counts; rows of requests that live on are computed again.
            self._scheduler.interrupted(works)
            return
        except Exception as error:
            if len(works) == 1:
                works[0].request.fail(typed(error))
            else:
                # Rows do not depend on their neighbours, so alone each gives what it would have given together.
                for work in works:
                    self._step([work])
            return
        row = 0
        for work in works:
            request = work.request
            if request.vectors is not None:
                rows, first = _rows_of(work, request.vectors), request.vectors.rows.start
                if rows:
                    request.vectors.out[rows.start - first : rows.stop - first] = logits[row : row + len(rows)]
                row += max(0, len(rows))
                self._advance(work)
                if not request.pending:
                    request.finish("stop")
                continue
            if request.logits is not None:
                stop = row + work.n_rows
                request.logits[request.computed : request.computed + work.n_rows] = logits[row:stop]
                row = stop
                self._advance(work)
                if not request.pending:
                    request.finish("stop")
                continue
            self._advance(work)
            if request.pending:
                continue
            if request.max_tokens == 0 or request.sampler is None:
                request.finish("length")
                continue
            try:
                token = request.sampler.sample(logits[row])
                request.sampler.accept(token)
                request.accept(token)
            except Exception as error:
                request.fail(typed(error))
            row += 1

    def _advance(self, work: Work) -> None:
        snapshots = self._scheduler.advance(work)
        if snapshots:
            self._executable.copy_states(snapshots)


def typed(error: Exception) -> EdgeLLMError:
    """Return `error` as one of ours, with the original as its cause."""
    if isinstance(error, EdgeLLMError):
        return error
    kind = OutOfMemoryError if isinstance(error, MemoryError) else BackendError
    wrapped = kind(f"the step failed: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped


def fail_all(requests: Sequence[Request], error: EdgeLLMError) -> None:
    """End every request with the same error."""
    for request in requests:
        request.fail(error)
