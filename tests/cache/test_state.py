"""Slots of recurrent states: who has them, what snapshots hold, and where prefixes can be gone on from."""

import random

import pytest

from edgellm.cache.pages import PAGE, GroupSpec, PageCache
from edgellm.cache.pool import GONE, Label
from edgellm.cache.state import INTERVAL, OutOfSlots, StatePool, next_stop
from edgellm.errors import ArgumentError


def label(n: int, parent: int = 0) -> Label:
    return Label(n.to_bytes(16), parent.to_bytes(16), (n,) * PAGE)


def test_a_pool_needs_a_slot() -> None:
    with pytest.raises(ArgumentError):
        StatePool(0)


def test_sequences_get_different_slots_until_none_is_left() -> None:
    pool = StatePool(3)
    assert sorted(pool.take() for _ in range(3)) == [0, 1, 2]
    assert pool.free == 0
    with pytest.raises(OutOfSlots, match="all 3 slots"):
        pool.take()
    pool.drop(1)
    assert pool.take() == 1


def test_a_snapshot_is_a_copy_in_another_slot() -> None:
    pool = StatePool(2)
    own = pool.take()
    ((source, target),) = pool.keep(own, label(1))
    assert source == own != target
    assert pool.find(label(1)) == target
    assert pool.free == 1  # Snapshots give way to sequences.


def test_the_same_snapshot_is_not_taken_twice() -> None:
    pool = StatePool(4)
    own = pool.take()
    assert pool.keep(own, label(1))
    assert pool.keep(own, label(1)) == []
    assert pool.snapshots == 1


def test_equal_keys_are_not_enough() -> None:
    pool = StatePool(2)
    pool.keep(pool.take(), label(1))
    assert pool.find(label(1)._replace(tokens=(9,) * PAGE)) == GONE
    assert pool.find(label(1)._replace(parent=b"other")) == GONE


def test_sequences_take_the_slot_of_the_snapshot_unused_for_longest() -> None:
    pool = StatePool(4)
    own = pool.take()
    for n in (1, 2, 3):
        pool.keep(own, label(n))
    oldest = pool.find(label(2))
    pool.keep(own, label(1))  # Seen again: it is the newest now.
    assert pool.take() == oldest
    assert not pool.has(label(2))
    assert pool.has(label(1))
    assert pool.has(label(3))


def test_snapshots_replace_one_another_but_never_a_sequence() -> None:
    pool = StatePool(2)
    own = pool.take()
    pool.keep(own, label(1))
    assert pool.keep(own, label(2))
    assert not pool.has(label(1))
    assert pool.has(label(2))
    pool.take()
    assert not pool.has(label(2))
    assert pool.keep(own, label(3)) == []


def test_going_on_from_a_snapshot_leaves_it_there() -> None:
    pool = StatePool(3)
    pool.keep(pool.take(), label(1))
    source, target = pool.resume(label(1))
    assert source == pool.find(label(1)) != target
    with pytest.raises(ArgumentError):
        pool.resume(label(2))


def test_the_last_slot_is_the_snapshots_own() -> None:
    pool = StatePool(2)
    pool.keep(pool.take(), label(1))
    source, target = pool.resume(label(1))
    assert source == target
    assert not pool.has(label(1))
    assert pool.free == 0


def test_a_forgotten_snapshot_frees_its_slot() -> None:
    pool = StatePool(3)
    own = pool.take()
    pool.keep(own, label(1))
    pool.forget(label(1))
    pool.forget(label(1))
    assert pool.snapshots == 0
    assert len({own, pool.take(), pool.take()}) == 3


@pytest.mark.parametrize("seed", range(20))
def test_no_slot_ever_belongs_to_two(seed: int) -> None:
    rng = random.Random(seed)
    pool = StatePool(rng.randint(1, 6))
    content: dict[int, object] = {}
    owned: dict[int, object] = {}
    taken: dict[Label, object] = {}
    for step in range(300):
        what, known = rng.choice(["take", "drop", "keep", "resume", "forget"]), label(rng.randrange(8))
        if what in ("take", "resume") and len(owned) == pool.n_slots:
            with pytest.raises(OutOfSlots):
                pool.take()
        elif what == "take":
            slot = pool.take()
            assert slot not in owned
            owned[slot] = content[slot] = step
        elif what == "resume" and pool.has(known):
            source, slot = pool.resume(known)
            assert slot not in owned
            content[slot] = content[source]
            assert content[slot] == taken[known]
            owned[slot] = content[slot]
        elif what == "drop" and owned:
            slot = rng.choice(list(owned))
            del owned[slot]
            pool.drop(slot)
        elif what == "keep" and owned:
            slot = rng.choice(list(owned))
            for source, target in pool.keep(slot, known):
                assert target not in owned
                content[target] = content[source]
                taken[known] = content[target]
        elif what == "forget":
            pool.forget(known)
        assert {slot: content[slot] for slot in owned} == owned
        for there in (n for n in map(label, range(8)) if pool.has(n)):
            assert content[pool.find(there)] == taken[there]
        assert pool.free == pool.n_slots - len(owned)


@pytest.mark.parametrize(
    ("position", "n_tokens", "stop"),
    [
        (0, 1, 1),
        (0, PAGE, PAGE),
        (0, PAGE + 1, PAGE),
        (PAGE, PAGE + 1, PAGE + 1),
        (0, 100, 96),
        (96, 100, 100),
        (0, 96, 80),
        (80, 96, 96),
        (0, 2000, INTERVAL),
        (INTERVAL - 1, 2000, INTERVAL),
        (INTERVAL, 2000, 2 * INTERVAL),
        (100, 101, 101),
    ],
)
def test_prompts_stop_where_others_may_go_on(position: int, n_tokens: int, stop: int) -> None:
    assert next_stop(position, n_tokens) == stop


@pytest.mark.parametrize("windows", [[], [None], [None, 32]])
def test_a_prefix_matches_as_far_as_the_last_snapshot(windows: list[int | None]) -> None:
    states = StatePool(8)
    cache = PageCache([GroupSpec(window, 32) for window in windows], states.has)
    tokens = list(range(100))
    table, slot = cache.new_table(), states.take()
    for start in range(0, 96, PAGE):
        cache.extend(table, PAGE)
        cache.commit(table, tokens[start : start + PAGE])
        found = table.last_label()
        assert found is not None
        if start + PAGE in (32, 80):
            states.keep(slot, found)
    assert cache.match(tokens) == 80
    assert cache.match(tokens, limit=79) == 32
    assert cache.match(tokens[:80]) == 32
    assert cache.match(tokens[:31]) == 0
    twin = cache.attach(tokens)
    assert twin.length == 80
    last = twin.last_label()
    assert last is not None
    assert states.has(last)
    states.forget(last)
    assert cache.match(tokens) == 32


def test_only_whole_fresh_pages_have_a_last_label() -> None:
    cache = PageCache([GroupSpec(None, 16)])
    table = cache.new_table()
    assert table.last_label() is None
    cache.extend(table, 64)
    cache.commit(table, list(range(20)))
    assert table.last_label() is None
    cache.commit(table, list(range(20, 64)))
    assert table.last_label() is not None
    cache.shift(table, 16, 16)
    assert table.length == 48
    assert table.last_label() is None
