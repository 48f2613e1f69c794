"""What must be true of a batch before anything is computed; for backends that are written in Python."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgellm.backends.base import PAGE, Batch, Segment
from edgellm.errors import ArgumentError
from edgellm.program import Program


def check_batch(
    batch: Batch, *, n_vocab: int, max_rows: int, windows: Sequence[int | None], n_pages: Sequence[int]
) -> None:
    """Raise ArgumentError for a batch with impossible tokens, rows, positions or pages.

    `windows` and `n_pages` describe the groups of layers.
    """
    n_rows = sum(segment.n_rows for segment in batch.segments)
    if not 0 < n_rows <= max_rows or len(batch.tokens) != n_rows:
        raise ArgumentError(f"{len(batch.tokens)} tokens in {n_rows} rows, of at most {max_rows}")
    for name, ids, limit in (("token", batch.tokens, n_vocab), ("row", batch.wanted, n_rows)):
        if len(ids) and not 0 <= ids.min() <= ids.max() < limit:
            raise ArgumentError(f"a {name} is not from 0 to {limit - 1}")
    for segment in batch.segments:
        _check_segment(segment, windows, n_pages)


def check_result(program: Program, batch: Batch) -> str:
    """Return the value that a batch asks for.  Raises ArgumentError where the program does not make it."""
    if batch.embed and program.embedding is None:
        raise ArgumentError(f"this {program.architecture} program declares no embeddings")
    if not batch.embed and not program.generates:
        raise ArgumentError(f"this {program.architecture} program makes embeddings only, no logits")
    return program.embedding if batch.embed and program.embedding is not None else program.ops[-1].out


def check_pages(pages: Sequence[int], n_pages: int) -> None:
    """Raise ArgumentError for a page that is not there."""
    bad = [page for page in pages if not 0 <= page < n_pages]
    if bad:
        raise ArgumentError(f"page {bad[0]} is not from 0 to {n_pages - 1}")


def _check_segment(segment: Segment, windows: Sequence[int | None], n_pages: Sequence[int]) -> None:
    if segment.start < 0 or segment.n_rows < 1:
        raise ArgumentError(f"a segment of {segment.n_rows} rows at position {segment.start}")
    if len(segment.pages) != len(n_pages):
        raise ArgumentError(f"{len(segment.pages)} page tables for {len(n_pages)} groups of layers")
    last = (segment.start + segment.n_rows - 1) // PAGE
    for table, count, window in zip(segment.pages, n_pages, windows, strict=True):
        first = 0 if window is None else max(0, segment.start - window + 1) // PAGE
        seen = np.asarray(table)[first : last + 1]
        if len(seen) <= last - first or seen.min() < 0 or seen.max() >= count:
            raise ArgumentError(f"position {segment.start} needs pages from 0 to {count - 1}, has {seen.tolist()}")
