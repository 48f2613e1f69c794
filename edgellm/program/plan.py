"""Which values may share memory: buffer slots by liveness."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from edgellm.program.experts import MatMulExperts
from edgellm.program.ops import (
    Activate,
    Add,
    Glu,
    L2Norm,
    LayerNorm,
    MatMul,
    Mul,
    Op,
    PositionScale,
    RmsNorm,
    Rope,
    Scale,
    Sinkhorn,
    Softcap,
    Softmax,
    Xielu,
    inputs,
)
from edgellm.program.program import Program

_IN_PLACE = (
    Activate,
    Add,
    Glu,
    L2Norm,
    LayerNorm,
    Mul,
    PositionScale,
    RmsNorm,
    Rope,
    Scale,
    Sinkhorn,
    Softcap,
    Softmax,
    Xielu,
)
"""Ops that read an element of each input for the last time before they write it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Where the values of a program live while it runs."""

    slots: Mapping[str, int | None]
    """Value → slot; None is the caller's array of logits, where the last value goes."""
    widths: tuple[int, ...]
    """Width of each slot, that of its widest value."""


@dataclass(frozen=True, slots=True)
class _Life:
    """From the instant that makes a value to the one that reads it last, both included."""

    start: int
    end: int
    name: str
    inherits: tuple[str, ...] = ()
    """Values whose place this one may take in the very instant of their last use."""


@dataclass(slots=True)
class _Slot:
    """Lives that never overlap, in order of time."""

    width: int
    lives: list[_Life] = field(default_factory=list)

    def fits(self, life: _Life) -> bool:
        at = bisect(self.lives, life.start, key=lambda other: other.start)
        before, after = self.lives[max(0, at - 1) : at], self.lives[at : at + 1]
        return all(_follows(life, b) for b in before) and all(_follows(a, life) for a in after)

    def add(self, life: _Life) -> None:
        self.lives.insert(bisect(self.lives, life.start, key=lambda other: other.start), life)


def plan(program: Program) -> Plan:
    """Assign a slot to every value such that none is overwritten while it is needed.

    An op's output never shares a slot with its inputs, except that an elementwise op may overwrite an
    input that nobody reads later.  Consecutive MatMuls of one value count as one instant, since a
    backend may run them at the same time.  Where the logits are made by elementwise ops in a row, all
    of these work in the caller's array, and no slot is as wide as the vocabulary.  Embeddings have a slot.
    """
    lives = list(_lives(program.ops, program.widths))
    logits = _logits_chain(lives) if program.generates else set[str]()
    slots: list[_Slot] = []
    where: dict[str, int | None] = dict.fromkeys(logits)
    widths = program.widths
    # Widest first: a slot is then never widened, and narrow values fill the gaps of wide ones.
    for life in sorted(lives, key=lambda life: (-widths[life.name], life.start)):
        if life.name in logits:
            continue
        index = min((i for i, s in enumerate(slots) if s.fits(life)), key=lambda i: slots[i].width, default=None)
        if index is None:
            index = len(slots)
            slots.append(_Slot(widths[life.name]))
        slots[index].add(life)
        where[life.name] = index
    return Plan({life.name: where[life.name] for life in lives}, tuple(s.width for s in slots))


def _lives(ops: tuple[Op, ...], widths: Mapping[str, int]) -> Iterator[_Life]:
    instants = list(_instants(ops))
    last = {op.out: t for op, t in zip(ops, instants, strict=True)}
    for op, t in zip(ops, instants, strict=True):
        for name in inputs(op):
            last[name] = t
    for op, t in zip(ops, instants, strict=True):
        # A narrower input is read again for each of the neighbours it covers.
        same = tuple(name for name in inputs(op) if widths[name] == widths[op.out])
        yield _Life(t, last[op.out], op.out, same if isinstance(op, _IN_PLACE) else ())


def _instants(ops: tuple[Op, ...]) -> Iterator[int]:
    """Yield the instant of each op: its number, but one for all matrix products in a row of the same input."""
    t = -1
    before: Op | None = None
    for op in ops:
        together = isinstance(op, (MatMul, MatMulExperts)) and type(op) is type(before) and inputs(op) == inputs(before)
        t += not together
        before = op
        yield t


def _follows(later: _Life, earlier: _Life) -> bool:
    return later.start > earlier.end or (later.start == earlier.end and earlier.name in later.inherits)


def _logits_chain(lives: list[_Life]) -> set[str]:
    """Return the last value, and those it was made of element by element."""
    by_name = {life.name: life for life in lives}
    chain = lives[-1:]
    while chain[-1:] and len(chain[-1].inherits) == 1:
        source = by_name[chain[-1].inherits[0]]
        if not _follows(chain[-1], source):
            break
        chain.append(source)
    return {life.name for life in chain}
