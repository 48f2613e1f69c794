"""What a backend is: it compiles a Program once and then runs steps.

The engine knows only this page.  A backend owns its copy of the weights (or borrows the file's
bytes), its key/value pages and its scratch memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from edgellm.dtypes import DType
from edgellm.program import Program

PAGE = 16
"""Tokens per key/value page, the same in every layer group."""

KVType = Literal["f16", "q8_0", "f32"]
KV_TYPES: tuple[KVType, ...] = ("f16", "q8_0", "f32")


def kv_page_bytes(kv_type: KVType, dim: int) -> int:
    """Return the bytes of one head's keys, or values, of `dim` dimensions in one page."""
    if kv_type != "q8_0":
        return dim * PAGE * (4 if kv_type == "f32" else 2)
    blocks = -(-dim // 32)
    return -(-blocks * (32 + 2) * PAGE // 64) * 64


@dataclass(frozen=True, slots=True)
class Weight:
    """One tensor's bytes as the file stores them; `shape` has the fastest axis first."""

    dtype: DType
    shape: tuple[int, ...]
    data: memoryview


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """What a backend must provide room for."""

    n_pages: tuple[int, ...]
    """Key/value pages per group of `Program.windows`."""
    max_rows: int
    """The most rows (tokens) of one step."""
    kv_type: KVType = "f16"
    """How keys and values are kept; q8_0: 8-bit integers, 32 of which share a scale."""
    threads: int = 1
    n_slots: int = 0
    """Slots for recurrent states: each holds all of `Program.recurrent` of one sequence."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive rows of one sequence, at the consecutive positions ``start, start+1, …``."""

    start: int
    n_rows: int
    pages: Sequence[npt.NDArray[np.int32]]
    """Per group: physical page of each logical block (position // PAGE) up to the last row's; -1 where it is gone."""
    slot: int = -1
    """Where the recurrent states are read and left; at position 0 they begin as zeros.  -1 in a program without."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One step: the rows of all segments, one after the other."""

    tokens: npt.NDArray[np.int32]
    segments: Sequence[Segment]
    wanted: npt.NDArray[np.int32]
    """Ascending indices of the rows whose logits are wanted."""
    embed: bool = False
    """Return these rows of `Program.embedding` instead, and compute nothing beyond."""


class Executable(Protocol):
    """A compiled Program with its key/value pages."""

    threads: int
    """How many threads a step may use.  Any thread may set it; it counts from the next step on and changes no bit."""

    def step(self, batch: Batch) -> npt.NDArray[np.float32]:
        """Run one step and return the logits ``[len(batch.wanted), n_vocab]``, or the vectors if ``batch.embed``.

        Keys and values of every row are stored in the pages the segments name.  Raises CancelledError
        if `cancel` was called meanwhile: the pages of this step's rows and the segments' slots are then undefined.
        """

    def copy_pages(self, group: int, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy the content of page ``src`` to page ``dst`` for each pair, in every layer of `group`."""

    def rotate_keys(self, group: int, pages: Sequence[int], delta: int) -> None:
        """Turn the stored keys of `pages` as if their positions had changed by `delta`."""

    def copy_states(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy the recurrent states of slot ``src`` to slot ``dst`` for each pair, one after the other."""

    def cancel(self) -> None:
        """Make the step now running (in another thread) end early."""

    def close(self) -> None:
        """Give back all memory; any other call is then an error.  May be called twice."""


class Backend(Protocol):
    """A way to run Programs on this machine."""

    name: str

    def compile(self, program: Program, weights: Mapping[str, Weight], options: CompileOptions) -> Executable:
        """Prepare `program` to run.  `weights` has every tensor of `Program.weights`, already verified.

        Raises UnsupportedModelError listing every tensor type the backend lacks, OutOfMemoryError where
        the pages or scratch memory cannot be had.
        """
