"""Going on beyond the context: the oldest tokens go, and the keys that stay move to where they belong."""

from __future__ import annotations

import itertools

import pytest

from edgellm.engine.limits import SINKS, shift_tokens
from tests.support.fake import hashed


def expected(prompt: list[int], n: int, n_ctx: int) -> tuple[list[int], int]:
    """Ids and dropped tokens of a run that drops the oldest after the sinks whenever the context is full."""
    rule, history, made, dropped = hashed(), list(prompt), [], 0
    for _ in range(n):
        made.append(rule(history))
        if len(history) == n_ctx:
            drop = shift_tokens(n_ctx)
            del history[SINKS : SINKS + drop]
            dropped += drop
        history.append(made[-1])
    return made, dropped


@pytest.mark.parametrize("windows", [(None,), (None, 8), (None, 24), (None, 40), (None, 200)])
@pytest.mark.parametrize("n_ctx", [48, 64, 100, 128])
def test_keys_are_where_their_positions_say_after_many_shifts(bench, windows, n_ctx):
    # The fake checks, for every token it predicts, that each key it sees has moved to its new position.
    b = bench(hashed(), n_ctx=n_ctx, n_batch=32, windows=windows, overflow="shift")
    prompt = list(range(20))
    generation = b.generate(prompt, 400)
    assert generation.text == ""
    ids, dropped = expected(prompt, 400, n_ctx)
    assert generation.token_ids == ids
    assert generation.dropped_tokens == dropped >= 15 * shift_tokens(n_ctx)
    assert generation.finish_reason == "length"


@pytest.mark.parametrize("n", [43, 44, 45, 46])
def test_the_first_shift_comes_when_the_context_is_full_and_not_before(bench, n):
    b = bench(hashed(), n_ctx=64, overflow="shift")
    generation = b.generate(list(range(20)), n)
    assert generation.text == ""
    # 20 + 44 tokens fill the context; the 45th is chosen with all of them in sight, the 46th needs room.
    assert generation.dropped_tokens == (16 if n > 45 else 0)
    assert generation.token_ids == expected(list(range(20)), n, 64)[0]


def test_a_shifted_sequence_shares_no_page_with_later_ones(bench):
    b = bench(hashed(), n_ctx=64, overflow="shift")
    prompt = list(range(30))
    long = b.ids(prompt, 100)
    again = b.generate(prompt + long[:20], 30)
    assert again.text == ""
    fresh = bench(hashed(), n_ctx=64, overflow="shift")
    assert again.token_ids == fresh.ids(prompt + long[:20], 30)


def test_shared_pages_are_copied_before_their_keys_turn(bench):
    b = bench(hashed(), n_ctx=128, overflow="shift", n_pages=[40])
    prompt = list(range(32)) * 2
    b.fake.gate.clear()
    one, two = b.generate(prompt, 150), b.generate(prompt, 40)
    b.fake.gate.set()
    assert (one.text, two.text) == ("", "")
    assert one.token_ids == expected(prompt, 150, 128)[0]
    assert two.token_ids == one.token_ids[:40]


def test_several_sequences_shift_side_by_side(bench):
    b = bench(hashed(), n_ctx=64, overflow="shift", n_pages=[20])
    prompts = [[i] * 10 for i in range(3)]
    running = [b.generate(prompt, 200) for prompt in prompts]
    for prompt, generation in zip(prompts, running, strict=True):
        assert generation.text == ""
        assert generation.token_ids == expected(prompt, 200, 64)[0]


def test_a_prompt_too_long_loses_its_middle(bench):
    b = bench(hashed(), n_ctx=64, overflow="shift")
    prompt = list(itertools.islice(itertools.cycle(range(31)), 200))
    generation = b.generate(prompt, 4)
    assert generation.text == ""
    kept = prompt[:SINKS] + prompt[-(64 - SINKS - shift_tokens(64)) :]
    assert generation.dropped_tokens == 200 - len(kept)
    assert generation.token_ids == expected(kept, 4, 64)[0]
