"""The memory plan: how much a model needs, computed from its header before anything is loaded."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from dataclasses import dataclass

from edgellm.backends.base import PAGE, KVType, kv_page_bytes
from edgellm.engine.machine import available_memory
from edgellm.errors import ArgumentError, OutOfMemoryError
from edgellm.program import Program

MAX_RUNNING = 32
"""Sequences computed at once; more wait in the queue."""

_WINDOWED_SEQUENCES = 8  # sliding-window groups have room for so many sequences at full stretch
_LOGITS_BYTES = 64 << 20  # of one step, when the logits of every row are wanted
_SMALLEST_CTX = 512  # the default context does not go below, however little memory is free
_SMALLEST_BATCH = 32
_STATE_BYTES = 512 << 20  # recurrent states, where a few sequences do not need more
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What one loaded model takes, in bytes, and the sizes that follow from it."""

    n_ctx: int
    n_batch: int
    n_pages: tuple[int, ...]
    """Key/value pages per group of `Program.windows`."""
    weights: int
    """Tensor bytes; they stay in the mapped file."""
    kv: int
    """Keys and values of all pages; the system gives the memory as it is first used."""
    kv_per_token: int
    """Keys and values of one token in every layer."""
    scratch: int
    """Activations and logits of one step (an estimate)."""
    n_slots: int = 0
    """Recurrent states of so many sequences and snapshots."""
    states: int = 0
    """Bytes of all slots."""

    @property
    def n_running(self) -> int:
        """How many sequences may run at once: with recurrent layers, half of the slots are left to snapshots."""
        return min(MAX_RUNNING, self.n_batch, self.n_slots // 2 or MAX_RUNNING)

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.kv + self.states + self.scratch


class MemoryModel:
    """The sizes of one program as functions of context and batch."""

    def __init__(self, program: Program, weights: int, kv_type: KVType, scratch_width: int) -> None:
        """`weights` is the bytes of all tensors, `scratch_width` the floats per row that a step keeps at once."""
        self.program = program
        self.weights = weights
        self.scratch_width = scratch_width
        self.page_bytes = tuple(
            sum(
                s.n_head_kv * (kv_page_bytes(kv_type, s.head_dim) + kv_page_bytes(kv_type, s.head_dim_v))
                for s in program.states.values()
                if s.window == window
            )
            for window in program.windows
        )

        self.state_bytes = 4 * sum(math.prod(state.shape) for state in program.recurrent.values())

    def n_slots(self, n_batch: int) -> int:
        """Slots for recurrent states: two for every running sequence, as far as that is no great part of memory."""
        if not self.state_bytes:
            return 0
        return max(4, min(2 * min(MAX_RUNNING, n_batch), _STATE_BYTES // self.state_bytes))

    def n_pages(self, n_ctx: int, n_batch: int) -> tuple[int, ...]:
        """Pages per group: one whole context for full attention, some rings of window and chunk for the others."""
        whole = -(-n_ctx // PAGE) + 1
        if not self.program.causal:  # A step is as long as the context, and may be of many short sequences.
            return (-(-n_batch // PAGE) + MAX_RUNNING,) * len(self.program.windows)
        has_full = None in self.program.windows
        pages = []
        for window in self.program.windows:
            if window is None:
                pages.append(whole)
                continue
            ring = min(whole, -(-(window + n_batch) // PAGE) + 2)
            several = ring * _WINDOWED_SEQUENCES
            pages.append(min(several, whole) if has_full else several)
        return tuple(pages)

    def plan(self, n_ctx: int, n_batch: int) -> MemoryPlan:
        """Return the plan for these sizes, whether it fits or not.

        Where rows see those that follow, a step has room for a whole sequence.
        """
        n_batch = n_batch if self.program.causal else max(n_batch, n_ctx)
        pages = self.n_pages(n_ctx, n_batch)
        n_slots = self.n_slots(n_batch)
        rows = max(min(MAX_RUNNING, n_batch), logits_rows(self.program.n_vocab, n_batch))
        rows = rows if self.program.generates else 0
        return MemoryPlan(
            n_ctx=n_ctx,
            n_batch=n_batch,
            n_pages=pages,
            weights=self.weights,
            kv=sum(n * size for n, size in zip(pages, self.page_bytes, strict=True)),
            kv_per_token=sum(self.page_bytes) // PAGE,
            scratch=4 * (n_batch * self.scratch_width + rows * self.program.n_vocab),
            n_slots=n_slots,
            states=n_slots * self.state_bytes,
        )

    def largest_ctx(self, limit: int, n_batch: int) -> int:
        """Return the longest context whose plan takes at most `limit` bytes, 0 if even one page is too much."""
        top = -(-self.program.n_ctx_train // PAGE)
        pages = bisect_right(range(1, top + 1), limit, key=lambda n: self.plan(n * PAGE, n_batch).total)
        return min(pages * PAGE, self.program.n_ctx_train)


def plan_memory(
    model: MemoryModel, *, n_ctx: int | None, n_batch: int, max_memory: int | None, available: int | None = None
) -> MemoryPlan:
    """Choose context and batch.

    Without `max_memory`, a given `n_ctx` is refused only where its keys and values cannot be had at
    all; by default the context is the trained one, or what half of the memory left beside the weights
    holds.  With `max_memory`, everything must fit into it: first the batch shrinks, then a context that
    was not asked for.  `available` is for tests; None asks the machine.

    Raises OutOfMemoryError with the figures and the largest context that fits.
    """
    if available is None:
        available = available_memory()
    if max_memory is not None:
        return _fit(model, n_ctx, n_batch, max_memory)
    trained = model.program.n_ctx_train
    if n_ctx is not None:
        plan = model.plan(n_ctx, n_batch)
        if available is not None and plan.kv + plan.states + plan.scratch > available:
            # Weights are mapped and may be paged out, so they do not count here.
            raise _too_big(plan, "available", available, model.largest_ctx(available + model.weights, n_batch))
        return plan
    if available is None:
        return model.plan(min(trained, 4096), n_batch)
    fair = model.weights + max(0, available - model.weights) // 2
    return model.plan(max(model.largest_ctx(fair, n_batch), min(trained, _SMALLEST_CTX)), n_batch)


def _fit(model: MemoryModel, n_ctx: int | None, n_batch: int, limit: int) -> MemoryPlan:
    batch = n_batch
    while True:
        largest = model.largest_ctx(limit, batch)
        if largest >= (n_ctx or min(model.program.n_ctx_train, PAGE)):
            return model.plan(n_ctx or largest, batch)
        if batch <= _SMALLEST_BATCH:
            raise _too_big(model.plan(n_ctx or PAGE, batch), "max_memory", limit, largest)
        batch = max(_SMALLEST_BATCH, batch // 2)


def _too_big(plan: MemoryPlan, name: str, limit: int, largest: int) -> OutOfMemoryError:
    advice = f"the largest n_ctx that fits is {largest}" if largest else "no context fits beside them"
    kept = plan.kv + plan.states
    return OutOfMemoryError(
        f"n_ctx={plan.n_ctx} needs {plan.total} bytes (weights {plan.weights}, keys and values {kept}, "
        f"scratch {plan.scratch}), more than {name}={limit}: {advice}"
    )


def scratch_width(program: Program) -> int:
    """Estimate the floats per row that a step keeps at once, without planning its buffers.

    The two halves of a feed-forward layer and four values as wide as the model stand for what lives together.
    """
    return 2 * max(w for w in program.widths.values() if w != program.n_vocab) + 4 * program.n_embd


def logits_rows(n_vocab: int, n_batch: int) -> int:
    """Return how many rows of one step may all have their logits returned."""
    return max(1, min(n_batch, _LOGITS_BYTES // (4 * n_vocab)))


def parse_size(value: int | str | None, name: str) -> int | None:
    """Return bytes from an int or a text such as ``"3GB"`` (10⁹) or ``"3 GiB"`` (2³⁰).  Raises ArgumentError."""
    if value is None:
        return None
    size: object = value
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?I?)B?\s*", value.upper())
        size = int(float(match[1]) * _UNITS[match[2]]) if match and match[2] in _UNITS else None
    if isinstance(size, bool) or not isinstance(size, int) or size <= 0:
        raise ArgumentError(f'{name} must be a positive number of bytes or a size such as "3GB", not {value!r}')
    return size
