"""The physical pages of one layer group: who uses them, and what the full ones hold."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from edgellm.errors import ArgumentError, OutOfMemoryError

PAGE = 16
"""Tokens per page, in every group."""

GONE = -1
"""Stands for no page: it has left the window, or none holds what was asked for."""


class OutOfPages(OutOfMemoryError):
    """A pool has too few free pages; nothing has been changed."""


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """The layers that see equally far back, and how many pages they have.

    window: a query at position p sees the keys p-window+1 ... p; None: it sees all.
    """

    window: int | None
    n_pages: int

    def __post_init__(self) -> None:
        if (self.window is not None and self.window < 1) or self.n_pages < 1:
            raise ArgumentError(f"a window and a number of pages must be at least 1: {self}")


class Label(NamedTuple):
    """What a full page holds: `tokens`, after the history that `parent` stands for. `key` stands for both."""

    key: bytes
    parent: bytes
    tokens: tuple[int, ...]


class PagePool:
    """Pages numbered from 0, each free or with as many references as there are tables that hold it.

    A sealed page holds what its label says. It keeps its content when the last table lets it go, until the pool
    needs it for something else: pages without content are reused first, then the one unused for longest.
    """

    def __init__(self, spec: GroupSpec) -> None:
        self.window = spec.window
        self.refs = [0] * spec.n_pages
        self._labels: list[Label | None] = [None] * spec.n_pages
        self._sealed: dict[bytes, int] = {}
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(spec.n_pages))

    @property
    def free(self) -> int:
        """How many pages no table holds."""
        return len(self._free)

    def first_seen(self, position: int) -> int:
        """The block (position // PAGE) of the earliest key that a query at `position` sees."""
        return 0 if self.window is None else max(0, position - self.window + 1) // PAGE

    def require(self, count: int, dropped: Iterable[int] = ()) -> None:
        """Raise OutOfPages unless `count` pages can be taken once one reference to each of `dropped` is gone."""
        if count > self.free and count > self.free + sum(page != GONE and self.refs[page] == 1 for page in dropped):
            raise OutOfPages(f"{count} more pages are needed, {self.free} of {len(self.refs)} are free")

    def take(self) -> int:
        """A page of one's own, its old content forgotten. The caller has made sure that one is free."""
        page, _ = self._free.popitem(last=False)
        self.unseal(page)
        self.refs[page] = 1
        return page

    def share(self, page: int) -> int:
        """One more reference to a page."""
        self._free.pop(page, None)
        self.refs[page] += 1
        return page

    def drop(self, page: int) -> None:
        """One reference less."""
        self.refs[page] -= 1
        if self.refs[page] == 0:
            self._free[page] = None
            if self._labels[page] is None:
                self._free.move_to_end(page, last=False)

    def drop_all(self, pages: list[int]) -> None:
        """Drop pages, last first, so that the pool loses the end of a prefix before its beginning."""
        for page in reversed(pages):
            if page != GONE:
                self.drop(page)

    def find(self, label: Label) -> int:
        """The page that holds exactly this, or GONE. Equal keys alone are not enough."""
        page = self._sealed.get(label.key, GONE)
        return page if page != GONE and self._labels[page] == label else GONE

    def seal(self, page: int, label: Label) -> int:
        """Say what a page of one's own holds. Returns the page to use from now on: the first one to hold the same."""
        twin = self.find(label)
        if twin != GONE:
            self.share(twin)
            self.drop(page)
            return twin
        if label.key not in self._sealed:
            self._sealed[label.key] = page
            self._labels[page] = label
        return page

    def unseal(self, page: int) -> None:
        """Forget what a page holds, for it will be written."""
        label = self._labels[page]
        if label is not None:
            del self._sealed[label.key]
            self._labels[page] = None

    def own(self, pages: list[int], block: int) -> list[tuple[int, int]]:
        """Make pages[block] one's own to write. Returns the (source, destination) copy which that takes, if any."""
        source = pages[block]
        if self.refs[source] == 1:
            self.unseal(source)
            return []
        pages[block] = self.take()
        self.drop(source)
        return [(source, pages[block])]
