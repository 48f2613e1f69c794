"""Constraints in the engine: where they end a text, and whom their errors reach."""

from __future__ import annotations

import threading

import pytest

from edgellm.errors import GrammarError
from tests.support.fake import hashed, script
from tests.support.rules import Rules


def test_the_text_ends_where_the_constraint_is_complete(bench):
    b = bench(hashed())
    rules = Rules(lambda seen: [len(seen) + 7], length=5)
    generation = b.generate([1, 2], None, constraint=rules)
    assert generation.text == ""
    assert generation.token_ids == rules.seen == [7, 8, 9, 10, 11]
    assert generation.finish_reason == "stop"


@pytest.mark.parametrize(("max_tokens", "reason"), [(4, "length"), (5, "stop")])
def test_a_text_cut_before_it_is_complete_says_so(bench, max_tokens, reason):
    generation = bench(hashed()).generate([1, 2], max_tokens, constraint=Rules(lambda seen: [3], length=5))
    assert generation.text == ""
    assert (generation.finish_reason, len(generation.token_ids)) == (reason, max_tokens)


def test_an_end_token_that_the_constraint_allows_ends_the_text(bench):
    b = bench(script([9], 1))
    rules = Rules(lambda seen: [4] if len(seen) < 3 else [2])
    generation = b.generate([1], None, stop_ids=[2], constraint=rules)
    assert generation.text == ""
    assert generation.token_ids == rules.seen == [4, 4, 4, 2]
    assert generation.finish_reason == "stop"


def test_a_dead_end_fails_one_request_and_no_other(bench):
    b = bench(hashed())
    alone = b.ids([5, 6], 20)
    b.fake.gate.clear()
    good = b.generate([5, 6], 20)
    bad = b.generate([1], 20, constraint=Rules(lambda seen: [3] if len(seen) < 4 else []))
    b.fake.gate.set()
    with pytest.raises(GrammarError, match="step 4"):
        _ = bad.text
    assert bad.token_ids == [3] * 4
    assert (good.text, good.token_ids) == ("", alone)


def test_requests_with_constraints_run_side_by_side(bench):
    b = bench(hashed(), n_batch=32)
    b.fake.gate.clear()
    rules = [Rules(lambda seen, i=i: [i, i + 8], length=10 + i) for i in range(6)]
    running = [b.generate([i] * 20, None, constraint=r) for i, r in enumerate(rules)]
    b.fake.gate.set()
    for i, (generation, r) in enumerate(zip(running, rules, strict=True)):
        assert generation.text == ""
        assert generation.token_ids == r.seen
        assert len(r.seen) == r.masks == 10 + i
        assert set(r.seen) <= {i, i + 8}


def test_masks_are_computed_while_the_step_runs(bench):
    b = bench(hashed())
    computed = threading.Event()

    def rule(seen: list[int]) -> list[int]:
        computed.set()
        return [3]

    b.fake.fail = lambda batch: None if computed.wait(60) else pytest.fail("the step waits for nothing")
    assert b.ids([1], 1, constraint=Rules(rule)) == [3]


def test_preemption_and_prefix_reuse_do_not_disturb_a_constraint(bench):
    def rules() -> Rules:
        return Rules(lambda seen: range(len(seen) % 3, 32, 3), length=60)

    sampling = {"temperature": 1.5, "seed": 11, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    prompt = list(range(10))
    alone = bench(hashed()).ids(prompt, constraint=rules(), **sampling)
    b = bench(hashed(), n_ctx=128, n_batch=32, n_pages=[9])
    others = [b.generate([i] * 12, 60) for i in (5, 6, 7)]
    assert b.ids(prompt, constraint=rules(), **sampling) == alone
    assert len(alone) == 60
    del others


def test_closing_the_engine_ends_the_thread_of_the_masks(bench):
    def masks() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name.startswith("edgellm-masks")}

    before = masks()
    b = bench(hashed())
    b.ids([1], 2, constraint=Rules(lambda seen: [3]))
    assert len(masks() - before) == 1
    b.engine.close()
    assert masks() <= before


def test_requests_without_a_constraint_start_no_thread(bench):
    before = set(threading.enumerate())
    bench(hashed()).ids([1], 2)
    assert [thread.name for thread in set(threading.enumerate()) - before] == ["edgellm-engine"]
