"""A model as data: a linear list of ops over named values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from edgellm.program.ops import KVState, Op
from edgellm.program.recurrent import RecurrentState

Pooling = Literal["none", "mean", "cls", "last", "rank"]
"""How a text's rows become one vector: not at all, their mean, the first, the last, or a score made of the first."""


@dataclass(frozen=True, slots=True)
class Value:
    """A named matrix ``[rows, width]``."""

    name: str
    width: int


@dataclass(frozen=True, slots=True)
class Program:
    """What one step computes: ``ops`` in order; the last value is the logits, or in an encoder the embeddings."""

    architecture: str
    n_vocab: int
    n_embd: int
    n_ctx_train: int
    """Positions end here: the context the model was trained for."""
    ops: tuple[Op, ...]
    widths: Mapping[str, int]
    weights: Mapping[str, tuple[int, ...]]
    """Tensor name → the shape the ops need, fastest axis first."""
    states: Mapping[str, KVState]
    ignored: tuple[str, ...] = ()
    """Patterns (fnmatch) of tensors that may be in the file and change nothing."""
    recurrent: Mapping[str, RecurrentState] = field(default_factory=dict)
    """What recurrent ops carry from token to token."""
    constants: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Vectors that are in no file: the program brings them."""
    embedding: str | None = None
    """The value that holds a vector for each wanted row, before the logits are made of it."""
    pooling: Pooling | None = None
    """How the file says that these vectors are to be pooled."""

    @property
    def generates(self) -> bool:
        """Whether there are logits; an encoder ends with the embeddings."""
        return self.embedding is None or self.ops[-1].out != self.embedding

    @property
    def causal(self) -> bool:
        """Whether no row sees a later one, so that a sequence may come in several steps."""
        return all(state.causal for state in self.states.values())

    @property
    def windows(self) -> tuple[int | None, ...]:
        """The distinct attention windows: each is a group of layers that share one page table."""
        found = {s.window for s in self.states.values()}
        return tuple(sorted(found, key=lambda w: (w is not None, w or 0)))

    def group(self, state: str) -> int:
        """Return the index in `windows` of a state's page table."""
        return self.windows.index(self.states[state].window)
