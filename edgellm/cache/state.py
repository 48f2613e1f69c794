"""Which slot holds whose recurrent states: those of sequences that run, and snapshots to go on from.

A slot has room for all recurrent states of one sequence. They cannot be cut at a token as keys and values can, so
a sequence can go on from a prefix of another only where a snapshot was taken: a copy of the states after whole
pages, known by the label of the last one. Nothing here touches the states themselves: what must be copied is
returned as (source, destination), to be carried out in this order before anything else is written.

What always holds between two calls: a slot belongs to one sequence, or to one snapshot, or to nobody; a snapshot's
slot is never written before the snapshot is gone.
"""

from collections import OrderedDict

from edgellm.cache.pool import GONE, PAGE, Label
from edgellm.errors import ArgumentError, OutOfMemoryError

INTERVAL = 512
"""Tokens between the snapshots of a long prompt."""

NO_SLOT = -1
"""Stands for no slot."""


class OutOfSlots(OutOfMemoryError):
    """Every slot belongs to a sequence; nothing has been changed."""


class StatePool:
    """Slots numbered from 0. A sequence takes an unused one, or that of the snapshot unused for longest."""

    def __init__(self, n_slots: int) -> None:
        if n_slots < 1:
            raise ArgumentError(f"there must be at least 1 slot for recurrent states, not {n_slots}")
        self.n_slots = n_slots
        self._unused = list(range(n_slots - 1, -1, -1))
        self._owned: set[int] = set()
        self._snapshots: OrderedDict[bytes, tuple[Label, int]] = OrderedDict()

    @property
    def free(self) -> int:
        """How many slots a sequence could take."""
        return self.n_slots - len(self._owned)

    @property
    def snapshots(self) -> int:
        """How many snapshots there are."""
        return len(self._snapshots)

    def find(self, label: Label) -> int:
        """The slot of the snapshot after the page that `label` names, or GONE. Equal keys alone are not enough."""
        known, slot = self._snapshots.get(label.key, (None, GONE))
        return slot if known == label else GONE

    def has(self, label: Label) -> bool:
        """Whether a sequence could go on after the page that `label` names."""
        return self.find(label) != GONE

    def take(self) -> int:
        """A slot for a sequence, whatever it holds. May raise OutOfSlots."""
        slot = self._unused.pop() if self._unused else self._evict()
        self._owned.add(slot)
        return slot

    def resume(self, label: Label) -> tuple[int, int]:
        """A slot for a sequence that goes on from a snapshot, as (source, destination) of the copy.

        May raise OutOfSlots. Where no other slot is left the snapshot's own becomes the sequence's, and both numbers
        are the same.
        """
        source = self.find(label)
        if source == GONE:
            raise ArgumentError("there is no such snapshot")
        self._snapshots.move_to_end(label.key)
        return source, self.take()

    def drop(self, slot: int) -> None:
        """Give back a sequence's slot."""
        self._owned.remove(slot)
        self._unused.append(slot)

    def keep(self, slot: int, label: Label) -> list[tuple[int, int]]:
        """Take a snapshot of a sequence's slot. Returns the copy which that takes: none if it is there already, or if
        every other slot belongs to a sequence."""
        if label.key in self._snapshots:
            self._snapshots.move_to_end(label.key)
            return []
        if not self._unused and not self._snapshots:
            return []
        target = self._unused.pop() if self._unused else self._evict()
        self._snapshots[label.key] = (label, target)
        return [(slot, target)]

    def forget(self, label: Label) -> None:
        """Let go of a snapshot, if it is still there."""
        slot = self.find(label)
        if slot != GONE:
            del self._snapshots[label.key]
            self._unused.append(slot)

    def _evict(self) -> int:
        if not self._snapshots:
            raise OutOfSlots(f"all {self.n_slots} slots for recurrent states belong to sequences")
        _, (_, slot) = self._snapshots.popitem(last=False)
        return slot


def next_stop(position: int, n_tokens: int) -> int:
    """Where after `position` a prompt of `n_tokens` should end a step, so that a snapshot can be taken there.

    That is at every `INTERVAL`, at the last whole page before the prompt's last token, whose logits are always
    wanted, and at the end.
    """
    last = max(0, n_tokens - 1) // PAGE * PAGE
    stops = (n_tokens, last, (position // INTERVAL + 1) * INTERVAL)
    return min(stop for stop in stops if stop > position)
