"""One step: the schedule becomes a batch, the batch logits, and the logits tokens."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from edgellm.backends.base import Batch, Executable, Segment
from edgellm.engine.request import Request
from edgellm.engine.scheduler import Plan, Scheduler, Work
from edgellm.errors import BackendError, CancelledError, EdgeLLMError, OutOfMemoryError
from edgellm.sampling import logprobs

Rows = npt.NDArray[np.float32]


def build_batch(works: Sequence[Work]) -> Batch:
    """Lay out the rows of `works` one after the other; wanted are rows to sample from and those of scored prompts."""
    tokens: list[int] = []
    segments: list[Segment] = []
    wanted: list[int] = []
    for work in works:
        request, n = work.request, work.n_rows
        start = request.computed
        tokens += request.tokens[start : start + n]
        segments.append(Segment(start, n, work.pages, request.slot))
        first = len(tokens) - n
        wanted += range(first, first + scored_rows(work))
        if samples(work):
            wanted.append(len(tokens) - 1)
    return Batch(np.array(tokens, np.int32), segments, np.array(wanted, np.int32), any(map(embeds, works)))


def embeds(work: Work) -> bool:
    """Whether the rows of `work` are to give embeddings."""
    return work.request.score is not None and work.request.score.embed


def scored_rows(work: Work) -> int:
    """How many rows of `work`, from its first one on, have their logits or embeddings kept."""
    request = work.request
    return 0 if request.score is None else max(0, min(work.n_rows, request.score.n_rows - request.computed))


def samples(work: Work) -> bool:
    """Whether the last row of `work` is to be followed by a token."""
    return work.request.samples and work.n_rows == work.request.pending


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
        # A step gives logits or embeddings.
        embedding = [work for work in plan.works if embeds(work)]
        if embedding:
            self._step([work for work in plan.works if not embeds(work)])
            self._step(embedding)
        else:
            self._step(plan.works)

    def _step(self, works: Sequence[Work]) -> None:
        works = [work for work in works if not work.request.done]
        if not works:
            return
        batch = build_batch(works)
        for work in works:
            sampler = work.request.sampler
            if sampler is not None and samples(work):
                sampler.prepare(self._beside.submit)
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
            n_scored, n_sampled = scored_rows(work), int(samples(work))
            try:
                self._finish(work, logits[row : row + n_scored], logits[row + n_scored : row + n_scored + n_sampled])
            except Exception as error:
                work.request.fail(typed(error))
            row += n_scored + n_sampled

    def _finish(self, work: Work, scored: Rows, sampled: Rows) -> None:
        """Give a request what the step computed for it: rows of its prompt to score, and one to sample from or none."""
        request, sampler = work.request, work.request.sampler
        if request.score is not None and len(scored):
            request.score.take(request.computed, scored)
        self._advance(work)
        if request.score is not None and request.computed >= request.score.n_rows:
            request.score = None
        if request.pending:
            return
        if sampler is None or not len(sampled):
            request.finish("length")
            return
        token = sampler.sample(sampled[0])
        sampler.accept(token)
        top = request.top_logprobs
        request.accept(token, None if top is None else logprobs(sampled[0], token, top))

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
