"""The arguments of `_native.Executor` for a small model, and ways to spoil them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from edgellm.backends.lowering import lower
from tests.support.moe import mixture
from tests.support.native import N_VOCAB, decoder

N_PAGES, MAX_ROWS = 6, 64
MIXTURE = "mixture "

EXTREME = (-(2**31), -(2**31) + 1, -17, -2, -1, 0, 1, 2, 3, 15, 16, 17, 31, 32, 33, 64, 255, 4096, 65536, 2**20)
LARGE = (2**24, 2**29, 2**30 - 1, 2**30, 2**30 + 1, 2**31 - 33, 2**31 - 2, 2**31 - 1)
FLOATS = (0.0, -0.0, 1e-45, -1.0, 3e38, np.inf, -np.inf, np.nan)


@cache
def _lowered(kind: str) -> Any:
    model, name = (mixture, kind.removeprefix(MIXTURE)) if kind.startswith(MIXTURE) else (decoder, kind)
    return lower(*model(name))


@dataclass
class Description:
    """What an executor is made of; each list and array is a copy that may be spoiled."""

    isa: str
    ops: npt.NDArray[Any]
    weights: list[Any]
    slots: npt.NDArray[np.int32]
    states: npt.NDArray[Any]
    ropes: list[Any]
    pages: npt.NDArray[np.int32]
    max_rows: int = MAX_ROWS
    n_vocab: int = N_VOCAB
    kv_type: int = 0
    spoiled: str = ""
    """What was done to it, for messages."""

    @staticmethod
    def of(kind: str, isa: str) -> Description:
        """Return a sound one: two layers of matrices of one type, with experts if its name begins with MIXTURE."""
        low = _lowered(kind)
        pages = np.full(2, N_PAGES, np.int32)
        copies = low.ops.copy(), list(low.weights), low.slots.copy(), low.states.copy(), list(low.ropes)
        return Description(isa, *copies, pages)

    def make(self, core: Any) -> Any:
        """Make the executor."""
        return core.Executor(
            *(self.isa, self.ops, self.weights, self.slots, self.states, self.ropes, self.pages),
            *(self.max_rows, self.n_vocab, self.kv_type),
        )

    def spoil(self, rng: np.random.Generator) -> None:
        """Set one number of the description to something extreme."""
        ways: list[Callable[[np.random.Generator], str]] = [self._op] * 6 + [self._state] * 3
        parts = (
            (self._weight, self.weights),
            (self._rope, self.ropes),
            (self._slot, self.slots),
            (self._page, self.pages),
        )
        ways += [way for way, values in parts if len(values)] + [self._scalar, self._length]
        self.spoiled += ways[rng.integers(len(ways))](rng) + "; "

    def _op(self, rng: np.random.Generator) -> str:
        return spoil_field(self.ops, rng, "op")

    def _state(self, rng: np.random.Generator) -> str:
        return spoil_field(self.states, rng, "state")

    def _weight(self, rng: np.random.Generator) -> str:
        i, column = int(rng.integers(len(self.weights))), int(rng.integers(5))
        row = list(self.weights[i])
        if column == 0:
            whole = memoryview(row[0]).cast("B")
            row[0] = whole[: int(rng.integers(len(whole) + 1))]
        elif column == 1:
            row[1] = int(rng.choice([-(2**31), -1, 0, 1, 2, 3, 4, 8, 9, 10, 12, 14, 15, 30, 41, 42, 2**31 - 1]))
        else:
            row[column] = int(rng.choice([-(2**63), -1, 0, 1, 31, 33, 256, 2**30, 2**31, 2**32, 2**62, 2**63 - 1]))
        self.weights[i] = tuple(row)
        return f"weight {i} column {column}: {row[1:]}"

    def _rope(self, rng: np.random.Generator) -> str:
        frequencies, neox, magnitude = self.ropes[0]
        way = int(rng.integers(4))
        if way == 0:
            frequencies = np.resize(frequencies, int(rng.choice([0, 1, 15, 17, 33, 32768, 40000])))
        elif way == 1:
            frequencies = frequencies * float(rng.choice([1e300, 1e20, np.inf, np.nan, -1.0]))
        elif way == 2:
            neox = int(_number(rng))
        else:
            magnitude = float(rng.choice(FLOATS))
        self.ropes[0] = (frequencies, neox, magnitude)
        return f"rope {way}: {len(frequencies)} {frequencies[:1]} {neox} {magnitude}"

    def _slot(self, rng: np.random.Generator) -> str:
        i = int(rng.integers(len(self.slots)))
        self.slots[i] = _number(rng)
        return f"slot {i} {self.slots[i]}"

    def _page(self, rng: np.random.Generator) -> str:
        i = int(rng.integers(len(self.pages)))
        self.pages[i] = _number(rng)
        return f"pages {i} {self.pages[i]}"

    def _scalar(self, rng: np.random.Generator) -> str:
        name = str(rng.choice(["max_rows", "n_vocab", "kv_type"]))
        setattr(self, name, int(_number(rng)))
        return f"{name} {getattr(self, name)}"

    def _length(self, rng: np.random.Generator) -> str:
        name = str(rng.choice(["ops", "weights", "slots", "states", "ropes", "pages"]))
        value = getattr(self, name)
        n = int(rng.integers(len(value) + 1))
        setattr(self, name, value[:n])
        return f"{n} {name}"


@dataclass
class Step:
    """The arguments of `Executor.step` for two sequences, which may be spoiled."""

    tokens: npt.NDArray[np.int32] = field(default_factory=lambda: np.arange(30, dtype=np.int32))
    segments: npt.NDArray[np.int32] = field(default_factory=lambda: np.array([(0, 25), (3, 5)], np.int32))
    tables: npt.NDArray[np.int32] = field(default_factory=lambda: np.array([0, 1, 0, 1, 5, 4], np.int32))
    starts: npt.NDArray[np.int64] = field(default_factory=lambda: np.array([0, 2, 4, 5, 6], np.int64))
    wanted: npt.NDArray[np.int32] = field(default_factory=lambda: np.array([0, 24, 29], np.int32))
    n_logits: int = 3 * N_VOCAB
    threads: int = 2
    spoiled: str = ""

    def run(self, executor: Any) -> npt.NDArray[np.float32]:
        """Run it and return the logits, which begin as NaN."""
        logits = np.full(max(0, self.n_logits), np.nan, np.float32)
        executor.step(self.tokens, self.segments, self.tables, self.starts, self.wanted, logits, self.threads)
        return logits

    def spoil(self, rng: np.random.Generator) -> None:
        """Set one number to something extreme, or cut or stretch an array."""
        name = str(rng.choice(["tokens", "segments", "tables", "starts", "wanted", "n_logits", "threads"]))
        if name in ("n_logits", "threads"):
            sizes = (
                [0, 1, N_VOCAB, 3 * N_VOCAB - 1, 5000]
                if name == "n_logits"
                else [-(2**31), -1, 0, 1, 3, 257, 2**31 - 1]
            )
            setattr(self, name, int(rng.choice(sizes)))
            self.spoiled += f"{name} {getattr(self, name)}; "
            return
        array = getattr(self, name).copy()
        if array.size and rng.random() < 0.75:
            i = int(rng.integers(array.size))
            big = (
                [-(2**63), 2**63 - 1, 2**62, 2**32, 6, 5, 7]
                if name == "starts"
                else [*EXTREME, *LARGE, N_VOCAB, N_PAGES]
            )
            array.reshape(-1)[i] = int(big[rng.integers(len(big))])
            self.spoiled += f"{name}[{i}] = {array.reshape(-1)[i]}; "
        else:
            n = int(rng.choice([0, 1, max(0, len(array) - 1), len(array) + 1, 3 * len(array)]))
            array = np.resize(array, (n, *array.shape[1:]))
            self.spoiled += f"{n} of {name}; "
        setattr(self, name, array)


def _number(rng: np.random.Generator) -> int:
    choices = EXTREME if rng.random() < 0.7 else LARGE
    return int(choices[rng.integers(len(choices))])


def spoil_field(rows: npt.NDArray[Any], rng: np.random.Generator, what: str) -> str:
    """Set one number of one row to something extreme, and return what was done."""
    if not len(rows):
        return "nothing"
    i, name = int(rng.integers(len(rows))), str(rng.choice(rows.dtype.names or ()))
    if rows.dtype[name] == np.float32:
        rows[name][i] = rng.choice(FLOATS)
    else:
        # Small numbers are the valid ones of another op: the more dangerous kind of nonsense.
        rows[name][i] = rng.integers(-1, 29) if rng.random() < 0.5 else _number(rng)
    return f"{what} {i} {name} {rows[name][i]}"
