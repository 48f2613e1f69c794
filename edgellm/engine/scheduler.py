"""Who computes what in the next step: continuous batching under one budget of rows.

Requests run in the order they came.  Each step gives every running request its next rows, a decoding one
its single row, a prompt as many as the budget has left, and admits waiting requests with the rest.  When
pages run out the youngest running request gives its own back and waits for its next turn; computing its
tokens again gives the same keys, so nothing but time is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from edgellm.cache.pages import GONE, OutOfPages, PageCache, PageTable, blocks, pages_per_sequence
from edgellm.cache.state import NO_SLOT, StatePool, next_stop
from edgellm.engine.request import Request
from edgellm.errors import OutOfMemoryError


@dataclass(frozen=True, slots=True)
class Work:
    """The next `n_rows` tokens of a request, and per group the pages of its blocks so far."""

    request: Request
    n_rows: int
    pages: Sequence[npt.NDArray[np.int32]]


@dataclass(frozen=True, slots=True)
class Copy:
    """Pages of a group to copy, as (source, destination)."""

    group: int
    pairs: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Turn:
    """Pages of a group whose keys move by `delta` positions."""

    group: int
    pages: list[int]
    delta: int


@dataclass(slots=True)
class Plan:
    """One step, in the order in which it must happen: copies, turns, rows."""

    works: list[Work] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    states: list[tuple[int, int]] = field(default_factory=list)
    """Slots of recurrent states to copy, as (source, destination)."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes a scheduler works within."""

    n_ctx: int
    n_batch: int
    """Rows of one step."""
    n_running: int
    """Requests with pages at one time."""
    logits_rows: int
    """Rows of one step whose logits may all be wanted."""
    sinks: int
    """Tokens at the start of a sequence that a shift keeps."""
    shift: int
    """Tokens that a shift drops, whole pages; 0 where sequences end at `n_ctx`."""
    whole: bool = False
    """Whether a sequence must be computed in one step, since its rows see those that follow."""


class Scheduler:
    """The waiting and the running requests.  Used by the engine thread alone."""

    def __init__(self, cache: PageCache, sizes: Sizes, states: StatePool | None = None) -> None:
        """`states` is for models with recurrent layers; the cache must match only where it has a snapshot."""
        self.sizes = sizes
        self._cache = cache
        self._states = states
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []

    @property
    def busy(self) -> bool:
        """Whether any request is left, be it only to be cleared away."""
        return bool(self._running or self._waiting)

    def requests(self) -> list[Request]:
        """Return every request, running ones first."""
        return [*self._running, *self._waiting]

    def add(self, request: Request) -> None:
        """Put a request at the end of the queue."""
        self._waiting.append(request)

    def clear(self) -> None:
        """Forget all requests and free their pages."""
        for request in self._running:
            self._free(request)
        self._running.clear()
        self._waiting.clear()

    def plan(self) -> Plan:
        """Return the next step; requests that have ended are cleared away first."""
        self._sweep()
        plan = Plan()
        budget = self.sizes.n_batch
        for request in self._running.copy():
            if budget == 0:
                break
            if request.table is None:
                continue
            if request.computed == self.sizes.n_ctx:
                self._shift(request, plan)
            n_rows = self._rows(request, budget)
            if n_rows and self._make_room(request, request.table, n_rows):
                plan.works.append(self._work(request, request.table, n_rows))
                budget -= n_rows
        plan.works = [work for work in plan.works if work.request.table is not None]
        while budget and self._waiting and len(self._running) < self.sizes.n_running:
            work = self._admit(self._waiting[0], budget, plan)
            if work is None:
                break
            plan.works.append(work)
            budget -= work.n_rows
        return plan

    def advance(self, work: Work) -> list[tuple[int, int]]:
        """Note that the rows of `work` are stored: pages they filled can be shared from now on.

        Returns the slots of recurrent states to copy at once, as (source, destination).
        """
        request, start = work.request, work.request.computed
        if request.table is None:
            return []
        request.computed += work.n_rows
        self._cache.commit(request.table, request.tokens[start : request.computed])
        return self._snapshot(request, request.table, start)

    def interrupted(self, works: Sequence[Work]) -> None:
        """Note that a step was broken off: recurrent states may be anywhere within it, so they begin again."""
        for request in [work.request for work in works if work.request.slot != NO_SLOT]:
            if request in self._running and not request.done:
                self._preempt(request)

    def _sweep(self) -> None:
        # Any thread may end a request meanwhile: it is asked once, or what it holds would be lost.
        ended = [request for request in self._running if request.done]
        for request in ended:
            self._free(request)
            self._running.remove(request)
        if any(request.done for request in self._waiting):
            self._waiting = deque(request for request in self._waiting if not request.done)

    def _rows(self, request: Request, budget: int) -> int:
        if self.sizes.whole:
            return request.pending if request.pending <= budget else 0
        scored = request.score
        most = budget
        if scored is not None:
            most = min(budget, scored.most_rows, budget if scored.embed else self.sizes.logits_rows)
        if self._states is not None and scored is None and request.pending:
            most = min(most, next_stop(request.computed, len(request.tokens)) - request.computed)
        return min(request.pending, most, self.sizes.n_ctx - request.computed)

    def _make_room(self, request: Request, table: PageTable, n_rows: int) -> bool:
        """Get pages for the next rows, preempting younger requests, or the request itself where it is the youngest."""
        while True:
            try:
                self._cache.extend(table, n_rows)
            except OutOfPages:
                victim = max(self._running, key=_age)
                if victim is request and len(self._running) == 1:
                    tokens = request.computed + n_rows
                    request.fail(OutOfMemoryError(f"{tokens} tokens of one sequence do not fit in the pages there are"))
                    return False
                self._preempt(victim)
                if victim is request:
                    return False
            else:
                return True

    def _preempt(self, request: Request) -> None:
        self._free(request)
        self._running.remove(request)
        self._waiting.appendleft(request)

    def _free(self, request: Request) -> None:
        if request.table is not None:
            self._cache.release(request.table)
        if self._states is not None and request.slot != NO_SLOT:
            self._states.drop(request.slot)
        request.slot = NO_SLOT
        request.snapshot = None
        request.table = None
        request.computed = 0
        request.page_key = None

    def _admit(self, request: Request, budget: int, plan: Plan) -> Work | None:
        """Start the first waiting request on what the prefix cache has of it, if its whole sequence finds room."""
        if self.sizes.whole and request.pending > budget:
            return None
        # Scores are of every row, so nothing of them may come from the cache.
        scored = request.score is not None
        table = self._cache.new_table() if scored else self._cache.attach(request.tokens)
        request.computed = table.length
        if self._running and not self._has_room(request, table):
            self._cache.release(table)
            return None
        self._waiting.popleft()
        self._running.append(request)
        request.table = table
        self._take_slot(request, table, plan)
        request.begin()
        n_rows = self._rows(request, budget)
        if not self._make_room(request, table, n_rows):
            return None
        return self._work(request, table, n_rows)

    def _take_slot(self, request: Request, table: PageTable, plan: Plan) -> None:
        """Get room for the recurrent states, and what a snapshot holds of those after the tokens in `table`."""
        if self._states is None:
            return
        label = table.last_label()
        if label is None:
            request.slot = self._states.take()
            return
        source, request.slot = self._states.resume(label)
        if source != request.slot:
            plan.states.append((source, request.slot))

    def _snapshot(self, request: Request, table: PageTable, start: int) -> list[tuple[int, int]]:
        """Keep the states of prompts where others may go on from them, and the newest ones while decoding."""
        label = table.last_label()
        if self._states is None or request.score is not None or label is None:
            return []
        if request.computed == next_stop(start, request.prefilled):
            return self._states.keep(request.slot, label)
        if not request.completion:
            return []
        if request.snapshot is not None:
            self._states.forget(request.snapshot)
        copy = self._states.keep(request.slot, label)
        request.snapshot = label if copy else None
        return copy

    def _has_room(self, request: Request, table: PageTable) -> bool:
        """Whether the tokens known so far find free pages, with one left for each request that runs.

        Without that, a newcomer would soon be preempted by its elders and its prompt computed for nothing.
        """
        for pool, pages in zip(self._cache.pools, table.pages, strict=True):
            wanted = pages_per_sequence(pool.window, len(request.tokens) + 1, self.sizes.n_batch)
            if wanted - len(pages) + pages.count(GONE) + len(self._running) > pool.free:
                return False
        return True

    def _shift(self, request: Request, plan: Plan) -> None:
        """Drop the oldest tokens after the sinks.  Recurrent states cannot forget them and go on as they are.

        Where the pages do not allow it (a sliding window that reaches back to the sinks has lost them, or no page
        is free for a copy), what is kept is computed again instead.
        """
        sinks, drop = self.sizes.sinks, self.sizes.shift
        assert request.table is not None
        del request.tokens[sinks : sinks + drop]
        request.dropped += drop
        request.page_key = None
        try:
            shift = self._cache.shift(request.table, sinks, drop)
        except OutOfPages:
            shift = None
        if shift is None:
            self._cache.release(request.table)
            request.computed = 0
            return
        request.computed -= drop
        plan.copies += [Copy(group, pairs) for group, pairs in enumerate(shift.copies) if pairs]
        plan.turns += [Turn(group, pages, shift.delta) for group, pages in enumerate(shift.rotate) if pages]

    def _work(self, request: Request, table: PageTable, n_rows: int) -> Work:
        end = blocks(request.computed + n_rows)
        # Pages change only where a block is added, sealed or lost; most decoded tokens can use the last arrays.
        key = (end, len(table.chain), *(pool.first_seen(request.computed) for pool in self._cache.pools))
        if key != request.page_key:
            request.page_key = key
            request.page_arrays = [np.array(pages[:end], np.int32) for pages in table.pages]
        return Work(request, n_rows, request.page_arrays)


def _age(request: Request) -> tuple[bool, int]:
    """Orders requests for preemption, the largest first: the youngest, but a shifted one, which cannot be computed
    again from its tokens alone, only if there is no other."""
    shifted = request.table is not None and request.table.shifted
    return (not shifted, request.arrival)
