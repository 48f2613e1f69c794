"""Who gets which rows: batching, order, preemption and reuse, on pages that remember what was written."""

from __future__ import annotations

import random
import time

import pytest

from edgellm.engine.request import Request
from edgellm.engine.scoring import KeepLogits
from edgellm.errors import OutOfMemoryError
from edgellm.sampling import Sampler, SamplingParams
from tests.support.fake import hashed


def prompt(n: int, seed: int = 0) -> list[int]:
    return [random.Random(seed).randrange(32) for _ in range(n)]


def expected(ids: list[int], n: int, rule=None) -> list[int]:
    """What a run over nothing but this sequence gives."""
    rule, history = rule or hashed(), list(ids)
    for _ in range(n):
        history.append(rule(history))
    return history[len(ids) :]


def test_a_prompt_is_read_in_chunks_of_the_budget(bench):
    b = bench(hashed(), n_batch=64)
    assert b.ids(prompt(150), 3) == expected(prompt(150), 3)
    assert b.fake.rows == [[(0, 64)], [(64, 64)], [(128, 22)], [(150, 1)], [(151, 1)]]


def test_decoding_rows_and_prompts_share_a_step(bench):
    b = bench(hashed(), n_batch=64)
    b.fake.gate.clear()
    first = b.generate(prompt(5), 8)
    b.fake.entered.wait(30)
    second = b.generate(prompt(100, 1), 4)
    b.fake.gate.set()
    assert (first.text, second.text) == ("", "")
    assert first.token_ids == expected(prompt(5), 8)
    assert second.token_ids == expected(prompt(100, 1), 4)
    assert b.fake.rows[1] == [(5, 1), (0, 63)]
    assert b.fake.rows[2] == [(6, 1), (63, 37)]
    assert b.fake.rows[3] == [(7, 1), (100, 1)]


def test_many_together_give_what_each_gives_alone(bench):
    b = bench(hashed(), n_ctx=512, n_batch=48)
    jobs = [(prompt(7 * i + 1, i), 5 + i) for i in range(20)]
    running = [b.generate(ids, n) for ids, n in jobs]
    for generation, (ids, n) in zip(running, jobs, strict=True):
        assert generation.text == ""
        assert generation.token_ids == expected(ids, n)
    assert max(len(rows) for rows in b.fake.rows) > 5
    assert all(sum(n for _, n in rows) <= 48 for rows in b.fake.rows)


def test_no_more_run_at_once_than_allowed(bench):
    b = bench(hashed(), n_running=3)
    b.fake.gate.clear()
    running = [b.generate(prompt(4, i), 6) for i in range(8)]
    b.fake.gate.set()
    assert [g.text for g in running] == [""] * 8
    assert max(len(rows) for rows in b.fake.rows) == 3


@pytest.mark.parametrize("windows", [(None,), (None, 24), (24,)])
def test_too_few_pages_for_all_cost_time_but_no_token(bench, windows):
    b = bench(hashed(), n_ctx=128, n_batch=32, windows=windows, n_pages=[9] * len(windows))
    jobs = [(prompt(3 + 5 * i, i), 60) for i in range(6)]
    running = [b.generate(ids, n) for ids, n in jobs]
    for generation, (ids, n) in zip(running, jobs, strict=True):
        assert generation.text == ""
        if windows[0] is None:
            assert generation.token_ids == expected(ids, n)
        assert generation.finish_reason == "length"
    if windows[0] is None:
        starts = [start for rows in b.fake.rows for start, n in rows if n > 1]
        assert len(starts) > 6, "nobody was preempted, so this test says nothing"
    _settle(b)
    assert b.free_pages() == [9] * len(windows)


def _settle(b) -> None:
    """Wait until the engine has swept what has ended."""
    deadline = time.monotonic() + 60
    while b.scheduler.busy and time.monotonic() < deadline:
        time.sleep(0.001)


def test_the_youngest_gives_way_and_the_eldest_never_waits(bench):
    b = bench(hashed(), n_ctx=128, n_batch=32, n_pages=[9])
    b.fake.gate.clear()
    eldest = b.generate(prompt(10), 110)
    younger = [b.generate(prompt(10, i), 60) for i in (1, 2, 3)]
    b.fake.gate.set()
    assert eldest.text == ""
    # One row a step, from its first to its last token.
    assert sum(any(start >= 10 for start, _ in rows[:1]) for rows in b.fake.rows) >= 109
    assert [g.text for g in younger] == [""] * 3
    assert eldest.timings.decode_s < max(g.timings.queue_s + g.timings.decode_s for g in younger) + 1


def test_a_prompt_seen_before_is_not_computed_again_but_for_its_last_page(bench):
    b = bench(hashed())
    ids = prompt(100)
    cold = b.generate(ids, 5)
    assert cold.text == ""
    b.fake.rows.clear()
    warm = b.generate(ids, 5)
    assert warm.text == ""
    assert (cold.usage.cached_tokens, warm.usage.cached_tokens) == (0, 96)
    assert warm.token_ids == cold.token_ids
    assert b.fake.rows[0] == [(96, 4)]


def test_the_last_token_of_a_cached_prompt_is_always_computed(bench):
    b = bench(hashed())
    long, short = prompt(64), prompt(64)[:32]
    b.ids(long, 1)
    generation = b.generate(short, 1)
    assert generation.text == ""
    assert generation.usage.cached_tokens == 16
    assert generation.token_ids == expected(short, 1)


def test_a_follow_up_finds_prompt_and_reply_in_the_cache(bench):
    b = bench(hashed())
    ids = prompt(40)
    reply = b.ids(ids, 30)
    follow = [*ids, *reply, *prompt(10, 7)]
    generation = b.generate(follow, 5)
    assert generation.text == ""
    assert generation.usage.cached_tokens == 64
    assert generation.token_ids == expected(follow, 5)


@pytest.mark.parametrize("windows", [(None, 8), (None, 40)])
def test_windows_and_reuse(bench, windows):
    # A window of 8 within pages of 16: a prompt of 40, again, and a branch at position 20.
    b = bench(hashed(), windows=windows, n_pages=[17, 10])
    ids = prompt(40)
    assert b.ids(ids, 20) == b.ids(ids, 20) == expected(ids, 20)
    branch = ids[:20] + prompt(30, 3)
    assert b.ids(branch, 20) == expected(branch, 20)
    assert b.ids(ids, 20) == expected(ids, 20)


def test_scores_come_from_no_cache_and_leave_none(bench):
    b = bench(hashed(), n_batch=16)
    ids = prompt(70)
    b.ids(ids, 2)
    b.fake.rows.clear()
    score = KeepLogits(70, 32)
    request = Request(ids, max_tokens=0, sampler=None, score=score)
    b.engine.submit(request)
    assert request.events.get() is None
    assert b.fake.rows == [[(0, 16)], [(16, 16)], [(32, 16)], [(48, 16)], [(64, 6)]]
    assert score.rows.argmax(1).tolist() == [hashed()(ids[: i + 1]) for i in range(70)]


def test_a_sequence_that_fits_nowhere_fails_alone(bench):
    b = bench(hashed(), n_ctx=256, n_pages=[4])
    generation = b.generate(prompt(100), 5)
    with pytest.raises(OutOfMemoryError):
        _ = generation.text
    assert b.ids(prompt(30), 5) == expected(prompt(30), 5)


def test_draws_do_not_depend_on_preemption_or_company(bench):
    sampling = {"temperature": 1.5, "seed": 11, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    alone = bench(hashed()).ids(prompt(10), 60, **sampling)
    b = bench(hashed(), n_ctx=128, n_batch=32, n_pages=[9])
    others = [b.generate(prompt(12, i), 60) for i in (5, 6, 7)]
    assert b.ids(prompt(10), 60, **sampling) == alone
    assert len(set(alone)) > 10
    del others


def test_a_sampler_of_ones_own_is_used_for_each_request(bench):
    b = bench(hashed())
    b.fake.gate.clear()
    request = [b.generate(prompt(4), 12, temperature=2.0, top_k=0, min_p=0.0, seed=s) for s in (1, 2, 1)]
    b.fake.gate.set()
    one, two, again = ((g.text, g.token_ids)[1] for g in request)
    assert one == again != two
    sampler = Sampler(SamplingParams(temperature=2.0, top_k=0, min_p=0.0, seed=1), 32, prompt(4))
    assert sampler.seed == request[0].seed == 1
