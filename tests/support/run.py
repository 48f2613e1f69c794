"""Run an Executable over one sequence, without an engine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from edgellm.backends.base import PAGE, Batch, CompileOptions, Executable, KVType, Segment
from edgellm.program import Program


def options_for(program: Program, n_tokens: int, kv_type: KVType = "f32", threads: int = 1) -> CompileOptions:
    """Return options with room for one sequence of `n_tokens` in every group of layers."""
    n_pages = -(-n_tokens // PAGE)
    n_slots = 1 if program.recurrent else 0
    return CompileOptions((n_pages,) * len(program.windows), n_tokens, kv_type, threads, n_slots)


def linear_table(program: Program, n_tokens: int) -> list[npt.NDArray[np.int32]]:
    """Return page tables, one per group, in which block i lies in page i."""
    return [np.arange(-(-n_tokens // PAGE), dtype=np.int32) for _ in program.windows]


def run_tokens(
    executable: Executable, program: Program, tokens: Sequence[int] | npt.NDArray[np.int32], chunk: int | None = None
) -> npt.NDArray[np.float32]:
    """Return the logits ``[len(tokens), n_vocab]`` of one sequence that starts at position 0.

    `chunk` rows go into each step (None: all of them); the tokens lie in the pages 0, 1, 2, … of every group.
    """
    ids = np.asarray(tokens, np.int32)
    chunk = chunk or len(ids)
    logits = []
    for start in range(0, len(ids), chunk):
        part = ids[start : start + chunk]
        slot = 0 if program.recurrent else -1
        segment = Segment(start, len(part), linear_table(program, start + len(part)), slot)
        logits.append(executable.step(Batch(part, [segment], np.arange(len(part), dtype=np.int32))))
    return np.concatenate(logits)
