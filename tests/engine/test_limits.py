"""How prompts and completions are fitted into the context."""

from __future__ import annotations

import pytest

from edgellm.engine.limits import SINKS, fit, shift_tokens, smallest_shifting_ctx
from edgellm.errors import ContextOverflowError


@pytest.mark.parametrize(
    ("n_prompt", "n_ctx", "asked", "given", "truncated"),
    [
        (85, 2048, None, 1963, False),
        (85, 2048, 0, 0, False),
        (85, 2048, 1963, 1963, False),
        (85, 2048, 1964, 1963, True),
        (40, 512, 1024, 472, True),
        (8, 256, None, 248, False),
        (256, 256, None, 0, False),
        (256, 256, 1, 0, True),
        (1, 1, None, 0, False),
    ],
)
@pytest.mark.parametrize("overflow", ["error", "stop"])
def test_the_completion_is_cut_to_the_room_left(n_prompt, n_ctx, asked, given, truncated, overflow):
    prompt = list(range(n_prompt))
    fitted = fit(prompt, asked, n_ctx, overflow)
    assert (fitted.prompt, fitted.max_tokens, fitted.truncated) == (prompt, given, truncated)


def test_a_prompt_one_token_too_long_is_refused_with_both_numbers():
    with pytest.raises(ContextOverflowError, match=r"257 tokens.* 256"):
        fit([0] * 257, 1, 256, "error")


def test_stop_makes_an_empty_completion_of_a_prompt_too_long():
    fitted = fit([0] * 257, None, 256, "stop")
    assert (fitted.prompt, fitted.max_tokens, fitted.truncated) == ([], 0, True)


@pytest.mark.parametrize("n_ctx", [48, 49, 64, 100, 256, 8192])
@pytest.mark.parametrize("beyond", [1, 15, 16, 17, 5000])
def test_shift_drops_the_middle_of_a_prompt_too_long_and_says_how_much(n_ctx, beyond):
    prompt = list(range(n_ctx + beyond))
    fitted = fit(prompt, None, n_ctx, "shift")
    assert fitted.prompt[:SINKS] == prompt[:SINKS]
    tail = fitted.prompt[SINKS:]
    assert tail == prompt[-len(tail) :]
    assert len(fitted.prompt) + fitted.dropped == len(prompt)
    # Never half of the window: what is dropped beyond need is one shift's worth.
    assert len(fitted.prompt) == n_ctx - shift_tokens(n_ctx) > n_ctx / 2
    assert fitted.max_tokens is None


def test_shift_sets_no_limit_of_its_own():
    assert fit([1, 2], None, 64, "shift").max_tokens is None
    assert fit([1, 2], 1000, 64, "shift").max_tokens == 1000
    assert fit([1] * 64, 5, 64, "shift").dropped == 0


def test_a_shift_drops_whole_pages_and_leaves_some():
    for n_ctx in range(smallest_shifting_ctx(), 3000):
        assert shift_tokens(n_ctx) % 16 == 0
        assert 16 <= shift_tokens(n_ctx) < n_ctx - SINKS
