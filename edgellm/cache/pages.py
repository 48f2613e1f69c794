"""Which page holds which tokens: page tables, sharing and the prefix cache, with no arrays in it.

A page has room for `PAGE` tokens in every layer of one group. A group is the layers that see equally far back:
all of it, or a sliding window. Each group has its own pool of pages; a sequence has a `PageTable`. Nothing here
touches keys and values: what must be copied or rotated is returned as plain numbers, to be carried out before
anything else is written.

What always holds between two calls:

1. A page has as many references as there are tables that hold it; no table holds a page twice.
2. A page with several references is full, and nobody writes it: the next token of a sequence goes to a page that
   only its own table holds.
3. A sealed page is full and holds exactly what its label says: its tokens, after one exact history.
4. Gone pages are a prefix of a window group's list, and the next query of the table sees none of them.
5. A call that raises or returns None has changed nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from struct import pack
from typing import NamedTuple

from edgellm.cache.pool import GONE, PAGE, GroupSpec, Label, OutOfPages, PagePool
from edgellm.errors import ArgumentError

__all__ = [
    "GONE",
    "PAGE",
    "Copies",
    "GroupSpec",
    "OutOfPages",
    "PageCache",
    "PageTable",
    "Shift",
    "blocks",
    "pages_per_sequence",
]

Copies = list[list[tuple[int, int]]]
"""Per group: (source, destination) pages whose content must be copied; in any order, no destination is a source."""


@dataclass(slots=True)
class PageTable:
    """Where one sequence is stored.

    pages: per group, the physical page of each block of `PAGE` positions, or GONE; may reach beyond the tokens.
    tokens: all tokens stored, at positions 0, 1, ...
    chain: the keys of the leading full pages that hold what a fresh run over `tokens` would store.
    shifted: whether some keys saw tokens that `shift` has dropped, so that no later page may be sealed.
    """

    pages: list[list[int]]
    tokens: list[int] = field(default_factory=list)
    chain: list[bytes] = field(default_factory=list)
    shifted: bool = False

    @property
    def length(self) -> int:
        """How many tokens are stored: the position of the next one."""
        return len(self.tokens)

    def last_label(self) -> Label | None:
        """The label of the last page if the table ends with a whole one that holds what a fresh run would store."""
        if self.shifted or not self.chain or len(self.chain) * PAGE != len(self.tokens):
            return None
        parent = self.chain[-2] if len(self.chain) > 1 else b""
        return Label(self.chain[-1], parent, tuple(self.tokens[-PAGE:]))


class Shift(NamedTuple):
    """What the store must do after a shift: first the copies, then turn the keys in `rotate` by `delta` positions.

    delta: minus the number of tokens dropped. rotate: pages per group.
    """

    delta: int
    rotate: list[list[int]]
    copies: Copies


def blocks(n_tokens: int) -> int:
    """How many pages `n_tokens` fill or begin."""
    return -(-n_tokens // PAGE)


def pages_per_sequence(window: int | None, n_ctx: int, chunk: int) -> int:
    """The most pages of a group that one sequence of up to n_ctx tokens, extended by up to `chunk` at a time, holds.

    A window and a chunk rarely begin and end with a page, hence one page more than their tokens would fill.
    """
    if window is None:
        return blocks(n_ctx)
    return min(blocks(n_ctx), blocks(window - 1 + chunk - 1) + 1)


class PageCache:
    """The pools of all groups, and what sequences do with them.

    With no group at all (a model without attention) every prefix matches, and only the chain of keys is kept.
    """

    def __init__(self, groups: Sequence[GroupSpec], resumable: Callable[[Label], bool] | None = None) -> None:
        """`resumable` says after which pages a sequence can go on, where keys and values are not all it takes."""
        self.pools = tuple(PagePool(group) for group in groups)
        self._resumable = resumable

    def new_table(self) -> PageTable:
        """The table of an empty sequence."""
        return PageTable([[] for _ in self.pools])

    def extend(self, table: PageTable, n_tokens: int) -> None:
        """Make room for the next `n_tokens`; pages that have left a window are let go first. May raise OutOfPages."""
        total = blocks(table.length + n_tokens)
        if self._has_room(table, total):
            return
        for pool, pages in self._groups(table):
            passed = pages[_first_present(pages, pool.first_seen(table.length)) : pool.first_seen(table.length)]
            pool.require(total - len(pages), passed)
        for pool, pages in self._groups(table):
            _forget(pool, pages, pool.first_seen(table.length))
            pages.extend(pool.take() for _ in range(total - len(pages)))

    def commit(self, table: PageTable, tokens: Sequence[int]) -> None:
        """Say that `tokens` have been stored at the next positions, and seal the pages they filled.

        A page may be exchanged for one that already holds the same. Raises ArgumentError without room for them.
        """
        length = table.length + len(tokens)
        room = min((len(pages) * PAGE for pages in table.pages), default=length)
        if length > room:
            raise ArgumentError(f"{length} tokens do not fit in the room for {room}: extend the table first")
        table.tokens.extend(tokens)
        if table.shifted or length // PAGE == len(table.chain):
            return
        for label in _labels(table.tokens, table.chain):
            block = len(table.chain)
            table.chain.append(label.key)
            for pool, pages in self._groups(table):
                pages[block] = pool.seal(pages[block], label)

    def release(self, table: PageTable) -> None:
        """Let go of every page and empty the table. Sealed pages stay in the prefix cache while memory allows."""
        for pool, pages in self._groups(table):
            pool.drop_all(pages)
            pages.clear()
        table.tokens.clear()
        table.chain.clear()
        table.shifted = False

    def truncate(self, table: PageTable, n_tokens: int) -> Copies | None:
        """Go back to the first `n_tokens`. None: a window has lost keys that the next query would see.

        Raises ArgumentError for more than there are; may raise OutOfPages, as a shared page in which the sequence
        then ends must be copied.
        """
        if not 0 <= n_tokens <= table.length:
            raise ArgumentError(f"cannot go back to {n_tokens} of {table.length} tokens")
        kept, open_tail = blocks(n_tokens), n_tokens % PAGE != 0
        for pool, pages in self._groups(table):
            if GONE in pages[pool.first_seen(n_tokens) : kept]:
                return None
        for pool, pages in self._groups(table):
            if open_tail and pool.refs[pages[kept - 1]] > 1:
                pool.require(1, pages[kept:])
        copies: Copies = []
        for pool, pages in self._groups(table):
            pool.drop_all(pages[kept:])
            del pages[kept:]
            copies.append(pool.own(pages, kept - 1) if open_tail else [])
        del table.tokens[n_tokens:]
        del table.chain[n_tokens // PAGE :]
        table.shifted = table.shifted and n_tokens > len(table.chain) * PAGE
        return copies

    def fork(self, table: PageTable) -> tuple[PageTable, Copies]:
        """A second table of the same tokens: it shares the full pages its next query sees, an open tail is copied.

        May raise OutOfPages.
        """
        full, open_tail = divmod(table.length, PAGE)
        for pool in self.pools:
            pool.require(1 if open_tail else 0)
        twin = PageTable([], table.tokens.copy(), table.chain.copy(), table.shifted)
        copies: Copies = []
        for pool, pages in self._groups(table):
            first = pool.first_seen(table.length)
            copies.append([(pages[full], pool.take())] if open_tail else [])
            shared = [pool.share(page) for page in pages[first:full]]
            twin.pages.append([GONE] * first + shared + [page for _, page in copies[-1]])
        return twin, copies

    def match(self, tokens: Sequence[int], limit: int | None = None) -> int:
        """How many leading tokens are stored in every group: whole pages, at most `limit`, never all of `tokens`.

        The last token is left out because its logits are wanted. In a window group only the pages count that the
        next query would see.
        """
        return len(self._match(tokens, limit)) * PAGE

    def attach(self, tokens: Sequence[int], limit: int | None = None) -> PageTable:
        """A table that shares the pages `match` found; its length says how many tokens they hold."""
        found = self._match(tokens, limit)
        length = len(found) * PAGE
        table = PageTable([], list(tokens[:length]), [label.key for label in found])
        for pool in self.pools:
            first = pool.first_seen(length)
            table.pages.append([GONE] * first + [pool.share(pool.find(label)) for label in found[first:]])
        return table

    def _match(self, tokens: Sequence[int], limit: int | None) -> list[Label]:
        """The labels of the longest reusable prefix."""
        most = min(len(tokens) - 1, len(tokens) if limit is None else limit)
        labels: list[Label] = []
        best = 0
        runs = [0] * len(self.pools)
        for label in _labels(tokens[: max(0, most)], []):
            labels.append(label)
            end = len(labels)
            runs = [run + 1 if pool.find(label) != GONE else 0 for pool, run in zip(self.pools, runs, strict=True)]
            lacking = [
                pool for pool, run in zip(self.pools, runs, strict=True) if run < end - pool.first_seen(end * PAGE)
            ]
            if not lacking:
                if self._resumable is None or self._resumable(label):
                    best = end
            elif any(pool.window is None for pool in lacking):
                break
        return labels[:best]

    def shift(self, table: PageTable, keep: int, drop: int) -> Shift | None:
        """Drop at least `drop` tokens after the first `keep`, both rounded up to pages, and move up what follows.

        None: a window would reach back to pages it has lost; drop fewer tokens. Raises ArgumentError for more than
        there is; may raise OutOfPages, as shared pages must be copied before their keys turn. Pages filled from now
        on are not sealed: their keys have seen what was dropped.
        """
        sinks, gap = blocks(keep), blocks(drop)
        if keep < 0 or drop < 1 or (sinks + gap) * PAGE > table.length:
            raise ArgumentError(f"cannot keep {keep} and drop {drop} of {table.length} tokens in whole pages")
        length = table.length - gap * PAGE
        for pool, pages in self._groups(table):
            kept = pages[:sinks] + pages[sinks + gap :]
            first = pool.first_seen(length)
            if GONE in kept[first:]:
                return None
            shared = sum(pool.refs[page] > 1 for page in kept[max(first, sinks) : blocks(length)])
            pool.require(shared, kept[:first] + pages[sinks : sinks + gap])
        result = Shift(-gap * PAGE, [], [])
        for pool, pages in self._groups(table):
            pool.drop_all(pages[sinks : sinks + gap])
            del pages[sinks : sinks + gap]
            _forget(pool, pages, pool.first_seen(length))
            moved = range(max(pool.first_seen(length), sinks), blocks(length))
            result.copies.append([pair for block in moved for pair in pool.own(pages, block)])
            result.rotate.append([pages[block] for block in moved])
        del table.tokens[sinks * PAGE : (sinks + gap) * PAGE]
        del table.chain[sinks:]
        table.shifted = length > len(table.chain) * PAGE
        return result

    def _has_room(self, table: PageTable, total: int) -> bool:
        """Whether `total` pages are there and none has left its window: so it is for most decoded tokens."""
        length = len(table.tokens)
        for pool, pages in zip(self.pools, table.pages, strict=True):
            first = 0 if pool.window is None else pool.first_seen(length)
            if len(pages) < total or (first and pages[first - 1] != GONE):
                return False
        return True

    def _groups(self, table: PageTable) -> Iterator[tuple[PagePool, list[int]]]:
        """The pool and the table's pages of each group."""
        return zip(self.pools, table.pages, strict=True)


def _labels(tokens: Sequence[int], chain: Sequence[bytes]) -> Iterator[Label]:
    """The labels of the full pages of `tokens` that come after those whose keys are `chain`."""
    parent = chain[-1] if chain else b""
    for start in range(len(chain) * PAGE, len(tokens) - PAGE + 1, PAGE):
        page = tuple(tokens[start : start + PAGE])
        key = blake2b(parent + pack(f"<{PAGE}q", *page), digest_size=16).digest()
        yield Label(key, parent, page)
        parent = key


def _first_present(pages: Sequence[int], end: int) -> int:
    """Where, before block `end`, the pages begin that are not gone. Looks only at those."""
    while end > 0 and pages[end - 1] != GONE:
        end -= 1
    return end


def _forget(pool: PagePool, pages: list[int], end: int) -> None:
    """Let go of the pages before block `end`."""
    first = _first_present(pages, end)
    pool.drop_all(pages[first:end])
    pages[first:end] = [GONE] * (end - first)
