"""Random histories of sequences against a store that remembers what each slot of each page holds.

A slot holds what keys and values depend on: everything the sequence had read up to and including that token, and
the position. Keys that saw tokens which a shift dropped are therefore never equal to those of a fresh run.
"""

from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edgellm.cache.pages import GONE, PAGE, Copies, GroupSpec, OutOfPages, PageCache, PageTable

LAYOUTS: list[list[tuple[int | None, int]]] = [
    [(None, 12)],
    [(None, 12), (8, 5)],
    [(20, 8), (None, 9)],
    [(1, 4), (16, 6), (33, 8)],
]


@dataclass
class Sequence:
    """A table and, per position, all that was read up to it."""

    table: PageTable
    read: list[int] = field(default_factory=list)


class Pages(RuleBasedStateMachine):
    """A few sequences that grow, branch, rewind, shift and end in any order."""

    @initialize(layout=st.sampled_from(LAYOUTS))
    def start(self, layout: list[tuple[int | None, int]]) -> None:
        self.cache = PageCache([GroupSpec(*group) for group in layout])
        self.slots: list[dict[tuple[int, int], tuple[int, int]]] = [{} for _ in layout]
        self.sequences: list[Sequence] = []
        self.seen: list[list[int]] = [[]]

    def pick(self, choice: int) -> Sequence:
        return self.sequences[choice % len(self.sequences)]

    def attempt(self, call: Callable[[], Any], table: PageTable) -> Any:
        """The result, or None if it did not work: then all must be as it was."""
        before = deepcopy((table, [(pool.refs, pool._free, pool._sealed, pool._labels) for pool in self.cache.pools]))
        try:
            result = call()
        except OutOfPages:
            result = None
        if result is None:
            after = (table, [(pool.refs, pool._free, pool._sealed, pool._labels) for pool in self.cache.pools])
            assert after == before
        return result

    def copy(self, copies: Copies) -> None:
        assert len(copies) == len(self.slots)
        for slots, pairs in zip(self.slots, copies, strict=True):
            assert not {source for source, _ in pairs} & {target for _, target in pairs}
            for source, target in pairs:
                for slot in range(PAGE):
                    if (source, slot) in slots:
                        slots[target, slot] = slots[source, slot]

    def write(self, one: Sequence, read: list[int]) -> None:
        """What a backend does in a step: store each row, in pages nobody else has."""
        for group, slots in enumerate(self.slots):
            pages = one.table.pages[group]
            for offset, history in enumerate(read):
                position = one.table.length + offset
                page = pages[position // PAGE]
                assert page != GONE
                assert self.cache.pools[group].refs[page] == 1
                slots[page, position % PAGE] = (history, position)
            self.check_seen(group, one, one.read + read, one.table.length)

    def check_seen(self, group: int, one: Sequence, read: list[int], query: int) -> None:
        """Whatever a query at `query` or later sees is what the sequence has read."""
        window = self.cache.pools[group].window
        first = 0 if window is None else max(0, query - window + 1)
        pages = one.table.pages[group]
        for position in range(first, len(read)):
            assert pages[position // PAGE] != GONE
            assert self.slots[group][pages[position // PAGE], position % PAGE] == (read[position], position)

    def grow(self, one: Sequence, tokens: list[int], accepted: int) -> None:
        """Extend by `tokens`, of which a speculative step keeps the first `accepted`."""

        def make_room() -> bool:
            self.cache.extend(one.table, len(tokens))
            return True

        if self.attempt(make_room, one.table):
            read = []
            last = one.read[-1] if one.read else 0
            for token in tokens:
                last = hash((last, token))
                read.append(last)
            self.write(one, read)
            self.cache.commit(one.table, tokens[:accepted])
            one.read += read[:accepted]
            self.seen.append(one.table.tokens.copy())

    @precondition(lambda self: len(self.sequences) < 4)
    @rule(
        base=st.integers(0, 1000),
        cut=st.integers(0, 200),
        token=st.integers(0, 2),
        count=st.integers(1, 60),
        limit=st.none() | st.integers(0, 100),
    )
    def begin(self, base: int, cut: int, token: int, count: int, limit: int | None) -> None:
        """A prompt that begins like an earlier sequence."""
        prompt = self.seen[base % len(self.seen)][:cut] + [token] * count
        found = self.cache.match(prompt, limit)
        one = Sequence(self.cache.attach(prompt, limit))
        assert one.table.length == found < len(prompt)
        assert one.table.tokens == prompt[:found]
        assert found % PAGE == 0
        assert limit is None or found <= limit
        last = 0
        for item in prompt[:found]:
            last = hash((last, item))
            one.read.append(last)
        self.sequences.append(one)
        self.grow(one, prompt[found:], len(prompt) - found)

    @precondition(lambda self: self.sequences)
    @rule(choice=st.integers(0, 3), token=st.integers(0, 2), count=st.integers(1, 40), rejected=st.integers(0, 3))
    def step(self, choice: int, token: int, count: int, rejected: int) -> None:
        self.grow(self.pick(choice), [token] * count, max(1, count - rejected))

    @precondition(lambda self: self.sequences)
    @rule(choice=st.integers(0, 3), back=st.integers(0, 60))
    def rewind(self, choice: int, back: int) -> None:
        one = self.pick(choice)
        length = max(0, one.table.length - back)
        copies = self.attempt(lambda: self.cache.truncate(one.table, length), one.table)
        if copies is not None:
            self.copy(copies)
            del one.read[length:]

    @precondition(lambda self: 0 < len(self.sequences) < 4)
    @rule(choice=st.integers(0, 3))
    def branch(self, choice: int) -> None:
        one = self.pick(choice)
        result = self.attempt(lambda: self.cache.fork(one.table), one.table)
        if result is not None:
            table, copies = result
            self.copy(copies)
            self.sequences.append(Sequence(table, one.read.copy()))

    @precondition(lambda self: self.sequences)
    @rule(choice=st.integers(0, 3), keep=st.integers(0, 40), drop=st.integers(1, 60))
    def shift(self, choice: int, keep: int, drop: int) -> None:
        one = self.pick(choice)
        sinks, gap = -(-keep // PAGE), -(-drop // PAGE)
        if (sinks + gap) * PAGE > one.table.length:
            return
        result = self.attempt(lambda: self.cache.shift(one.table, keep, drop), one.table)
        if result is not None:
            self.copy(result.copies)
            for group, pages in enumerate(result.rotate):
                for page in pages:
                    assert self.cache.pools[group].refs[page] == 1
                    for slot in range(PAGE):
                        if (page, slot) in self.slots[group]:
                            history, position = self.slots[group][page, slot]
                            self.slots[group][page, slot] = (history, position + result.delta)
            del one.read[sinks * PAGE : (sinks + gap) * PAGE]

    @precondition(lambda self: self.sequences)
    @rule(choice=st.integers(0, 3))
    def end(self, choice: int) -> None:
        one = self.sequences.pop(choice % len(self.sequences))
        self.cache.release(one.table)
        assert one.table == self.cache.new_table()

    @invariant()
    def references_are_the_tables_that_hold_a_page(self) -> None:
        for group, pool in enumerate(getattr(self, "cache", PageCache([])).pools):
            holders = Counter(page for one in self.sequences for page in one.table.pages[group] if page != GONE)
            assert [holders[page] for page in range(len(pool.refs))] == pool.refs
            assert set(pool._free) == {page for page, refs in enumerate(pool.refs) if refs == 0}

    @invariant()
    def every_table_holds_what_its_next_query_sees(self) -> None:
        for one in getattr(self, "sequences", []):
            assert one.table.length == len(one.read)
            for group, pool in enumerate(self.cache.pools):
                self.check_seen(group, one, one.read, one.table.length)
                pages = one.table.pages[group]
                lost = pages.count(GONE)
                assert pages[:lost] == [GONE] * lost
                full = one.table.length // PAGE
                assert all(pool.refs[page] == 1 for page in pages[full:] if page != GONE)

    def teardown(self) -> None:
        for one in getattr(self, "sequences", []):
            self.cache.release(one.table)
        for pool in getattr(self, "cache", PageCache([])).pools:
            assert pool.free == len(pool.refs)
            assert not any(pool.refs)


TestPages = Pages.TestCase
TestPages.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
