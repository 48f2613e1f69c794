import pytest

from edgellm.cache.pages import (
    GONE,
    PAGE,
    GroupSpec,
    OutOfPages,
    PageCache,
    PageTable,
    blocks,
    pages_per_sequence,
)
from edgellm.cache.pool import Label, PagePool
from edgellm.errors import ArgumentError, OutOfMemoryError


def cache_of(*groups: tuple[int | None, int]) -> PageCache:
    return PageCache([GroupSpec(window, n_pages) for window, n_pages in groups])


def store(cache: PageCache, table: PageTable, tokens: list[int]) -> None:
    cache.extend(table, len(tokens))
    cache.commit(table, tokens)


def stored(cache: PageCache, tokens: list[int], chunk: int = 1000) -> PageTable:
    table = cache.new_table()
    for start in range(0, len(tokens), chunk):
        store(cache, table, tokens[start : start + chunk])
    return table


def free(cache: PageCache) -> list[int]:
    return [pool.free for pool in cache.pools]


def test_pages_come_with_the_tokens_that_need_them() -> None:
    cache = cache_of((None, 4))
    table = cache.new_table()
    held = []
    for _ in range(33):
        store(cache, table, [7])
        held.append(len(table.pages[0]))
    assert held == [1] * 16 + [2] * 16 + [3]
    assert len(set(table.pages[0])) == 3
    assert free(cache) == [1]


def test_room_made_but_not_used_is_used_next() -> None:
    cache = cache_of((None, 4))
    table = cache.new_table()
    cache.extend(table, 40)
    cache.commit(table, [1] * 3)
    pages = table.pages[0].copy()
    cache.extend(table, 40)
    assert table.pages[0] == pages
    assert table.length == 3


def test_a_step_that_does_not_fit_changes_nothing_in_any_group() -> None:
    cache = cache_of((None, 4), (8, 2))
    table = stored(cache, [1] * 20)
    before = [pages.copy() for pages in table.pages]
    with pytest.raises(OutOfPages) as caught:
        cache.extend(table, 3 * PAGE)
    assert isinstance(caught.value, OutOfMemoryError)
    assert table.pages == before
    assert free(cache) == [2, 0]


def test_tokens_without_room_are_refused() -> None:
    cache = cache_of((None, 4))
    table = cache.new_table()
    cache.extend(table, 3)
    with pytest.raises(ArgumentError, match="extend"):
        cache.commit(table, [1] * 17)
    assert table.length == 0


@pytest.mark.parametrize("spec", [(0, 4), (-1, 4), (None, 0)])
def test_senseless_groups_are_refused(spec: tuple[int | None, int]) -> None:
    with pytest.raises(ArgumentError):
        GroupSpec(*spec)


@pytest.mark.parametrize(
    ("window", "length", "gone"),
    # The next query, at position `length`, sees window - 1 keys before it.
    [(8, 22, 0), (8, 23, 1), (8, 38, 1), (8, 39, 2), (1, 16, 1), (1, 15, 0), (17, 31, 0), (17, 32, 1), (100, 99, 0)],
)
def test_a_page_leaves_the_window_once_no_query_can_see_it(window: int, length: int, gone: int) -> None:
    cache = cache_of((window, 20))
    table = stored(cache, [1] * length)
    cache.extend(table, 1)
    assert [page == GONE for page in table.pages[0]] == [True] * gone + [False] * (blocks(length + 1) - gone)


@pytest.mark.parametrize("window", [1, 2, 8, 16, 17, 33, 64])
@pytest.mark.parametrize("chunk", [1, 2, 15, 16, 17, 40])
def test_the_planned_number_of_pages_is_enough_and_one_less_is_not(window: int, chunk: int) -> None:
    n_ctx = 400
    need = pages_per_sequence(window, n_ctx, chunk)

    def fits(n_pages: int, first: int) -> bool:
        cache = cache_of((window, n_pages))
        table = cache.new_table()
        try:
            store(cache, table, [1] * first)
            while table.length + chunk <= n_ctx:
                store(cache, table, [1] * chunk)
        except OutOfPages:
            return False
        return True

    firsts = range(min(chunk, PAGE) + 1)
    if chunk < PAGE:
        # Single tokens bring the sequence to every offset within a page.
        firsts = range(chunk + 1)
    assert all(fits(need, first) for first in firsts)
    assert need == 1 or not all(fits(need - 1, first) for first in firsts)


def test_the_plan_never_exceeds_the_context() -> None:
    assert pages_per_sequence(None, 100, 32) == 7
    assert pages_per_sequence(1000, 100, 32) == 7
    assert pages_per_sequence(512, 8192, 512) == 65


def test_equal_prompts_share_their_full_pages() -> None:
    cache = cache_of((None, 10))
    prompt = list(range(40))
    first = stored(cache, prompt)
    second = cache.attach(prompt)
    assert second.length == 32
    assert second.pages[0] == first.pages[0][:2]
    store(cache, second, prompt[32:])
    assert second.pages[0][2] != first.pages[0][2]
    assert free(cache) == [6]


def test_the_last_token_is_always_evaluated_again() -> None:
    cache = cache_of((None, 10))
    prompt = list(range(48))
    stored(cache, prompt)
    assert [cache.match(prompt[:n]) for n in (0, 1, 16, 17, 32, 33, 48)] == [0, 0, 0, 16, 16, 32, 32]
    assert cache.match([*prompt, 48]) == 48


def test_a_match_can_be_limited() -> None:
    cache = cache_of((None, 10))
    prompt = list(range(80))
    stored(cache, prompt)
    assert [cache.match(prompt, limit) for limit in (-1, 0, 15, 16, 33, 64, 1000)] == [0, 0, 0, 16, 32, 64, 64]
    assert cache.attach(prompt, 33).length == 32


def test_a_prefix_matches_only_as_a_whole() -> None:
    cache = cache_of((None, 20))
    page_a, page_b, page_c = [1] * 16, [2] * 16, [3] * 16
    stored(cache, page_a + page_b + page_c)
    assert cache.match(page_a + page_b + page_c + [0]) == 48
    assert cache.match([*page_a, *page_c, 0]) == 16
    assert cache.match([*page_b, *page_c, 0]) == 0


def test_released_pages_serve_until_they_are_needed_for_something_else() -> None:
    cache = cache_of((None, 4))
    old, new = [1] * 32, [2] * 32
    cache.release(stored(cache, old))
    cache.release(stored(cache, new))
    assert free(cache) == [4]
    assert cache.match([*old, 0]) == cache.match([*new, 0]) == 32
    table = stored(cache, [3] * 16)
    # The oldest prefix loses its end first.
    assert (cache.match([*old, 0]), cache.match([*new, 0])) == (16, 32)
    cache.extend(table, 16)
    assert (cache.match([*old, 0]), cache.match([*new, 0])) == (0, 32)


def test_use_keeps_a_prefix_in_the_cache() -> None:
    cache = cache_of((None, 4))
    old, new = [1] * 32, [2] * 32
    cache.release(stored(cache, old))
    cache.release(stored(cache, new))
    cache.release(cache.attach([*old, 0]))
    stored(cache, [3] * 32)
    assert (cache.match([*old, 0]), cache.match([*new, 0])) == (32, 0)


def test_pages_without_content_are_reused_before_cached_ones() -> None:
    cache = cache_of((None, 4))
    cache.release(stored(cache, [1] * 32))
    cache.release(stored(cache, [5] * 8))
    stored(cache, [2] * 32)
    assert cache.match([1] * 33) == 32


def test_two_contents_with_one_key_are_never_confused() -> None:
    pool = PagePool(GroupSpec(None, 2))
    one, two = Label(b"key", b"", (1,) * PAGE), Label(b"key", b"", (2,) * PAGE)
    pages = [pool.seal(pool.take(), label) for label in (one, two)]
    assert pages[0] != pages[1]
    assert (pool.find(one), pool.find(two)) == (pages[0], GONE)
    pool.drop_all(pages)
    assert {pool.take(), pool.take()} == set(pages)
    assert (pool.find(one), pool.find(two)) == (GONE, GONE)


def test_sequences_that_turn_out_equal_end_up_sharing() -> None:
    cache = cache_of((None, 10), (20, 10))
    tables = [cache.new_table() for _ in range(2)]
    for table in tables:
        cache.extend(table, 40)
    for table in tables:
        cache.commit(table, [5] * 40)
    assert [pages[:2] for pages in tables[0].pages] == [pages[:2] for pages in tables[1].pages]
    assert all(one[2] != two[2] for one, two in zip(tables[0].pages, tables[1].pages, strict=True))
    assert free(cache) == [6, 6]


def test_a_window_group_matches_where_its_last_keys_are_left() -> None:
    cache = cache_of((None, 20), (20, 3))
    prompt = list(range(100))
    cache.release(stored(cache, prompt, chunk=10))
    # The window's 3 pages hold blocks 4, 5 and the open one; at 96 the query sees back to 77, at 80 to 61: block 3.
    assert cache.match(prompt) == 96
    table = cache.attach(prompt)
    assert [page == GONE for page in table.pages[1]] == [True] * 4 + [False] * 2
    assert cache.match(prompt[:96]) == 0
    assert cache.match([*prompt[:90], 7]) == 0


def test_rewind_and_branch_with_a_small_window() -> None:
    cache = cache_of((8, 5))
    prompt = list(range(40))
    table = stored(cache, prompt)
    store(cache, table, [99])
    assert table.pages[0][:2] == [GONE, GONE]
    before = table.pages[0].copy()
    assert cache.truncate(table, 20) is None
    assert (table.length, table.pages[0]) == (41, before)
    # What was let go has not been overwritten yet, so a new table can still begin from it.
    assert cache.match(prompt[:20]) == 16
    assert cache.truncate(table, 39) == [[]]
    assert (table.length, table.tokens) == (39, prompt[:39])


def test_a_rewind_copies_a_shared_page_and_reuses_a_private_one() -> None:
    cache = cache_of((None, 10))
    prompt = list(range(48))
    one = stored(cache, prompt)
    two = cache.attach([*prompt, 0])
    shared = one.pages[0].copy()
    assert cache.truncate(two, 40) == [[(shared[2], two.pages[0][2])]]
    assert two.pages[0][:2] == shared[:2]
    assert cache.match([*prompt, 0]) == 48
    assert cache.truncate(one, 40) == [[]]
    assert one.pages[0] == shared
    # The page is open again, so it no longer is what its label said.
    assert cache.match([*prompt, 0]) == 32
    store(cache, one, prompt[40:])
    assert cache.match([*prompt, 0]) == 48


def test_a_rewind_without_a_page_for_the_copy_changes_nothing() -> None:
    cache = cache_of((None, 2))
    one = stored(cache, [1] * 32)
    two = cache.attach([1] * 33)
    with pytest.raises(OutOfPages):
        cache.truncate(two, 20)
    assert two.pages == one.pages
    assert two.length == 32
    assert cache.truncate(two, 16) == [[]]


@pytest.mark.parametrize("n_tokens", [-1, 21])
def test_a_rewind_to_where_the_sequence_never_was_is_refused(n_tokens: int) -> None:
    cache = cache_of((None, 4))
    with pytest.raises(ArgumentError, match="20"):
        cache.truncate(stored(cache, [1] * 20), n_tokens)


def test_a_fork_shares_full_pages_and_copies_the_open_one() -> None:
    cache = cache_of((None, 10), (8, 10))
    table = stored(cache, list(range(36)))
    cache.extend(table, 30)
    twin, copies = cache.fork(table)
    assert twin.pages[0][:2] == table.pages[0][:2]
    assert twin.pages[1][:2] == [GONE, table.pages[1][1]]
    assert copies == [[(mine[2], theirs[2])] for mine, theirs in zip(table.pages, twin.pages, strict=True)]
    store(cache, twin, [7] * 12)
    store(cache, table, [8] * 12)
    assert twin.tokens[36:] == [7] * 12
    assert all(len({one[2], two[2]}) == 2 for one, two in zip(table.pages, twin.pages, strict=True))


def test_a_fork_at_the_end_of_a_page_copies_nothing() -> None:
    cache = cache_of((None, 2))
    table = stored(cache, [1] * 32)
    twin, copies = cache.fork(table)
    assert copies == [[]]
    assert twin.pages == table.pages
    with pytest.raises(OutOfPages):
        cache.extend(twin, 1)


def test_a_shift_drops_pages_after_the_sinks_and_turns_the_rest() -> None:
    cache = cache_of((None, 10))
    table = stored(cache, list(range(100)))
    pages = table.pages[0].copy()
    shift = cache.shift(table, 5, 20)
    assert shift is not None
    assert shift.delta == -32
    assert shift.rotate == [pages[3:]]
    assert shift.copies == [[]]
    assert table.pages[0] == [pages[0], *pages[3:]]
    assert table.tokens == [*range(16), *range(48, 100)]
    assert free(cache) == [5]


def test_a_shift_copies_shared_pages_first() -> None:
    cache = cache_of((None, 10))
    one = stored(cache, list(range(64)))
    two, _ = cache.fork(one)
    pages = one.pages[0].copy()
    shift = cache.shift(two, 16, 16)
    assert shift is not None
    assert [source for source, _ in shift.copies[0]] == pages[2:]
    assert [target for _, target in shift.copies[0]] == shift.rotate[0] == two.pages[0][1:]
    assert two.pages[0][0] == pages[0]
    assert one.pages[0] == pages
    assert cache.match([*range(64), 0]) == 64


def test_what_follows_a_shift_is_never_found_as_a_prefix() -> None:
    cache = cache_of((None, 12))
    table = stored(cache, list(range(64)))
    assert cache.shift(table, 16, 16) is not None
    store(cache, table, list(range(64, 100)))
    assert cache.match([*table.tokens, 0]) == 16
    twin, _ = cache.fork(table)
    store(cache, twin, list(range(100, 140)))
    assert cache.match([*twin.tokens, 0]) == 16
    # Back within the sinks, the keys are those of the tokens again.
    assert cache.truncate(twin, 16) == [[]]
    store(cache, twin, [9] * 32)
    assert cache.match([*twin.tokens, 0]) == 48


@pytest.mark.parametrize("drop", [16, 32, 48])
def test_the_chain_of_a_shifted_sequence_ends_with_its_sinks(drop: int) -> None:
    cache = cache_of((None, 12))
    table = stored(cache, list(range(64)))
    sinks = table.chain[:1]
    assert cache.shift(table, 16, drop) is not None
    assert table.chain == sinks
    store(cache, table, [9] * 32)
    # With all but the sinks dropped, what comes next has seen nothing else.
    assert cache.match([*range(16), *[9] * 32, 0]) == (48 if drop == 48 else 16)
    # The dropped page 1 is still cached; the page after it in the table must not pass for one after it.
    assert cache.match([*range(32), *[9] * 32, 0]) == 32


def test_a_rewind_after_the_sinks_of_a_shifted_sequence_still_hides_it() -> None:
    cache = cache_of((None, 12))
    table = stored(cache, list(range(64)))
    assert cache.shift(table, 16, 16) is not None
    assert cache.truncate(table, 32) == [[]]
    store(cache, table, [9] * 32)
    assert cache.match([*table.tokens, 0]) == 16


def test_a_shift_may_copy_to_the_pages_it_lets_go() -> None:
    cache = cache_of((20, 4))
    table = stored(cache, [1] * 64)
    twin, _ = cache.fork(table)
    assert free(cache) == [0]
    pages = table.pages[0].copy()
    # Block 0 is dropped, block 1 leaves the window: just enough for copies of the two that the fork shares.
    shift = cache.shift(table, 0, 16)
    assert shift is not None
    assert [source for source, _ in shift.copies[0]] == pages[2:]
    assert {target for _, target in shift.copies[0]} == set(pages[:2])
    assert twin.pages[0][2:] == pages[2:]


def test_pages_already_gone_are_not_counted_as_given_back() -> None:
    cache = cache_of((8, 8))
    table = stored(cache, [1] * 112)
    cache.extend(table, 0)
    assert table.pages[0][:6] == [GONE] * 6
    cache.fork(table)
    stored(cache, [2] * 16 * free(cache)[0])
    # The page that GONE would name as an index has one reference, like one that the shift would free.
    assert cache.pools[0].refs[GONE] == 1
    with pytest.raises(OutOfPages):
        cache.shift(table, 0, 16)


@pytest.mark.parametrize(("keep", "drop"), [(0, 0), (-1, 16), (0, -5), (0, 65), (16, 49), (49, 1), (1, 49)])
def test_a_shift_of_more_than_there_is_is_refused(keep: int, drop: int) -> None:
    cache = cache_of((None, 10))
    table = stored(cache, [1] * 64)
    with pytest.raises(ArgumentError, match="64"):
        cache.shift(table, keep, drop)
    assert table.length == 64


def test_a_shift_in_a_window_group_turns_only_what_is_still_seen() -> None:
    cache = cache_of((None, 20), (20, 4))
    table = stored(cache, list(range(200)), chunk=10)
    everything, near = (pages.copy() for pages in table.pages)
    shift = cache.shift(table, 16, 100)
    assert shift is not None
    assert table.length == 88
    assert shift.rotate == [everything[8:], near[11:]]
    assert table.pages[1] == [GONE] * 4 + near[11:]


def test_a_shift_that_would_bring_lost_pages_into_the_window_is_impossible() -> None:
    cache = cache_of((None, 20), (40, 6))
    table = stored(cache, list(range(160)), chunk=10)
    before = [pages.copy() for pages in table.pages]
    assert cache.shift(table, 16, 112) is None
    assert (table.pages, table.length) == (before, 160)
    assert cache.shift(table, 16, 96) is not None


def test_many_small_shifts_keep_a_stream_within_its_ring() -> None:
    cache = cache_of((None, 5))
    table = cache.new_table()
    for token in range(1000):
        if table.length == 5 * PAGE:
            assert cache.shift(table, 2, 1) is not None
        store(cache, table, [token])
    assert table.tokens[:PAGE] == list(range(PAGE))
    newest = table.tokens[PAGE:]
    assert newest == list(range(1000 - len(newest), 1000))
    cache.release(table)
    assert free(cache) == [5]


def test_without_attention_only_the_tokens_are_kept() -> None:
    cache = cache_of()
    table = stored(cache, list(range(40)))
    assert (table.length, len(table.chain), table.pages) == (40, 2, [])
    assert cache.match(list(range(40))) == 32
    twin, copies = cache.fork(table)
    assert (twin.chain, copies) == (table.chain, [])


def test_the_chain_names_the_history_of_each_page() -> None:
    cache = cache_of((None, 20))
    one = stored(cache, [1] * 16 + [2] * 16)
    two = stored(cache, [3] * 16 + [2] * 16)
    assert len({*one.chain, *two.chain}) == 4
    assert stored(cache, [1] * 16).chain == one.chain[:1]
    assert {len(key) for key in one.chain} == {16}
