"""What happens at the end of the context: how a request is fitted into it before it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edgellm.backends.base import PAGE
from edgellm.errors import ContextOverflowError

Overflow = Literal["error", "stop", "shift"]
"""At the end of the context: refuse a prompt that is too long, end the text at once, or drop the oldest tokens."""

SINKS = PAGE
"""Tokens at the start that a shift never drops: attention leans on them."""


def shift_tokens(n_ctx: int) -> int:
    """Return how many tokens one shift drops: whole pages, an eighth of the context.

    Every shift turns the kept keys once more and rounds them to the cache's precision; dropping one page at a
    time would round each key hundreds of times.
    """
    return max(1, n_ctx // PAGE // 8) * PAGE


def smallest_shifting_ctx() -> int:
    """Return the shortest context that a shift leaves something of: the sinks, what it drops, and one page more."""
    return SINKS + 2 * PAGE


@dataclass(frozen=True, slots=True)
class Fit:
    """A request as the context allows it."""

    prompt: list[int]
    max_tokens: int | None
    """None only where the context shifts: no end but the model's."""
    dropped: int = 0
    """Tokens of the prompt that were left out, after the sinks."""
    truncated: bool = False
    """More tokens were asked for than the context has room for."""


def fit(prompt: list[int], max_tokens: int | None, n_ctx: int, overflow: Overflow) -> Fit:
    """Fit a prompt and its completion into `n_ctx` positions.

    The completion is clamped to the room left (`truncated` says so).  A prompt longer than the context raises
    ContextOverflowError under "error", gets an empty completion under "stop", and loses the tokens after its
    first page under "shift".
    """
    room = n_ctx - len(prompt)
    if overflow == "shift":
        if room >= 0:
            return Fit(prompt, max_tokens)
        # Room for as many tokens as a shift would make is left for the completion.
        kept = n_ctx - shift_tokens(n_ctx) - SINKS
        return Fit(prompt[:SINKS] + prompt[len(prompt) - kept :], max_tokens, dropped=len(prompt) - kept - SINKS)
    if room < 0:
        if overflow == "stop":
            return Fit([], 0, truncated=True)
        raise ContextOverflowError(
            f"the prompt has {len(prompt)} tokens, the context holds {n_ctx}: "
            f'shorten it, or load the model with a larger n_ctx or overflow="shift"'
        )
    if max_tokens is None:
        return Fit(prompt, room)
    return Fit(prompt, min(max_tokens, room), truncated=max_tokens > room)
