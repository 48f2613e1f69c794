"""One request: what was asked, how far it has come, and the queue its results leave by."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from edgellm.cache.pages import PageTable
from edgellm.cache.pool import Label
from edgellm.cache.state import NO_SLOT
from edgellm.engine.scoring import PromptLogprobs, Scoring
from edgellm.sampling import Sampler, TokenLogprobs

FinishReason = Literal["stop", "length", "cancelled", "tool_calls"]
"""The last one is only that of a `Reply`."""

_arrivals = itertools.count()


class TextOutput(Protocol):
    """Turns ids into text and watches for stop strings; used by the engine thread alone."""

    stopped: bool
    """A stop string has been met: nothing more is to come."""

    def feed(self, token: int) -> str:
        """Take the next id and return the text that is now certain, which may be empty."""

    def flush(self) -> str:
        """Return the text still held back; the sequence ends here."""


@dataclass(frozen=True, slots=True)
class Usage:
    """How many tokens a request took."""

    prompt_tokens: int
    """Of the prompt as it was given, those included that the context had no room for."""
    completion_tokens: int
    """Ids the model chose, the one that ended the text included."""
    cached_tokens: int
    """Prompt tokens whose keys and values came from the prefix cache."""

    @property
    def total_tokens(self) -> int:
        """Prompt and completion together."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class Timings:
    """Where the time of a request went, in seconds; a stage not reached is 0."""

    queue_s: float
    """From submission to the first step that had a row of the request."""
    prefill_s: float
    """From there to the first token."""
    decode_s: float
    """From the first token to the last."""
    first_token_s: float
    """From submission to the first token."""
    prefill_tps: float
    """Prompt tokens evaluated per second, cached ones not counted."""
    decode_tps: float
    """Tokens per second after the first."""


class Request:
    """The engine's record of one sequence.

    The engine thread alone changes it, except through `finish`, which any thread may call: the first
    call decides how the request ended, and nothing is delivered after it.
    """

    def __init__(
        self,
        prompt: list[int],
        *,
        max_tokens: int | None,
        sampler: Sampler | None,
        text: TextOutput | None = None,
        stop_ids: frozenset[int] = frozenset(),
        score: Scoring | None = None,
        top_logprobs: int | None = None,
    ) -> None:
        """`max_tokens` None is no limit; `score` takes the logits or vectors of the prompt; `top_logprobs` asks for the
        log-probabilities of chosen tokens and of so many rivals."""
        self.arrival = next(_arrivals)
        self.n_prompt = len(prompt)
        """Tokens the caller gave; `tokens` begins with fewer where the context was too short for them."""
        self.max_tokens = max_tokens
        self.sampler = sampler
        self.text = text
        self.stop_ids = stop_ids
        self.score = score
        """None once it has had all its rows."""
        self.prompt_logprobs = score if isinstance(score, PromptLogprobs) else None
        self.top_logprobs = top_logprobs
        self.logprobs: list[TokenLogprobs] = []

        self.tokens = list(prompt)
        """The sequence as its keys and values lie in the cache: `dropped` tokens after the sinks are gone."""
        self.computed = 0
        """Tokens of `tokens` whose keys and values are stored."""
        self.dropped = 0
        self.table: PageTable | None = None
        self.page_key: tuple[int, ...] | None = None
        """What `page_arrays` was made for; None where it must be made anew."""
        self.page_arrays: Sequence[npt.NDArray[np.int32]] = ()
        self.slot = NO_SLOT
        """Where the recurrent states of the sequence are."""
        self.snapshot: Label | None = None
        """Of the states while decoding, to be replaced by the next one."""
        self.prefilled = len(prompt)
        """Tokens of the prompt that are computed or found in the prefix cache."""
        self.completion: list[int] = []
        self.cached = 0
        self.truncated = False
        """The context, not the caller, set the limit that ended or would end the text."""

        self.events: SimpleQueue[str | None] = SimpleQueue()
        """Chunks of text; None at the end."""
        self.listener: Callable[[], None] | None = None
        """Called after every event, from the thread that caused it."""
        self.finish_reason: FinishReason | None = None
        self.error: BaseException | None = None
        self.done = False
        # Reentrant: the garbage collector may finish a lost request in a thread that is delivering to it.
        self._lock = threading.RLock()

        self.submitted_at = time.perf_counter()
        self.started_at: float | None = None
        self.first_token_at: float | None = None
        self.last_token_at: float | None = None

    @property
    def pending(self) -> int:
        """Tokens that are known but not yet computed."""
        return len(self.tokens) - self.computed

    @property
    def samples(self) -> bool:
        """Whether a token is to follow once nothing is pending."""
        return self.sampler is not None and self.max_tokens != 0

    def begin(self) -> None:
        """Note that the request has left the queue; what the cache had of it is in `computed`."""
        if self.started_at is None:
            self.started_at = time.perf_counter()
            self.cached = self.computed

    def accept(self, token: int, logprobs: TokenLogprobs | None = None) -> None:
        """Append a sampled token, deliver its text, and finish where it is the last."""
        now = time.perf_counter()
        if self.first_token_at is None:
            self.first_token_at = now
        self.last_token_at = now
        self.completion.append(token)
        if logprobs is not None:
            self.logprobs.append(logprobs)
        self.tokens.append(token)
        text = self.text
        if token in self.stop_ids:
            self.finish("stop")
        elif text is not None:
            self.deliver(text.feed(token))
            if text.stopped:
                self.finish("stop")
        if self.sampler is not None and self.sampler.finished:
            self.finish("stop")
        if not self.done and len(self.completion) == self.max_tokens:
            self.finish("length")

    def deliver(self, chunk: str) -> None:
        """Hand a chunk to the consumer; an empty one, or one after the end, is nothing."""
        if chunk:
            with self._lock:
                if not self.done:
                    self._put(chunk)

    def finish(self, reason: FinishReason) -> None:
        """End the request, once: text still held back goes out first, except where a cancel cuts it off."""
        with self._lock:
            if self.done:
                return
            if self.text is not None and reason != "cancelled":
                tail = self.text.flush()
                if tail:
                    self._put(tail)
            self.finish_reason = reason
            self.done = True
            self._put(None)

    def fail(self, error: BaseException) -> None:
        """End the request with an error for its consumer, once."""
        with self._lock:
            if not self.done:
                self.error = error
                self.done = True
                self._put(None)

    def _put(self, event: str | None) -> None:
        self.events.put(event)
        listener = self.listener
        if listener is not None:
            listener()

    def usage(self) -> Usage:
        """Return the token counts so far."""
        return Usage(self.n_prompt, len(self.completion), self.cached)

    def timings(self) -> Timings:
        """Return the times so far."""
        started, first, last = self.started_at, self.first_token_at, self.last_token_at
        queue_s = (started or time.perf_counter()) - self.submitted_at
        prefill_s = first - started if started is not None and first is not None else 0.0
        decode_s = last - first if first is not None and last is not None else 0.0
        evaluated = self.prefilled - self.cached
        return Timings(
            queue_s=queue_s,
            prefill_s=prefill_s,
            decode_s=decode_s,
            first_token_s=first - self.submitted_at if first is not None else 0.0,
            prefill_tps=evaluated / prefill_s if prefill_s > 0.0 else 0.0,
            decode_tps=(len(self.completion) - 1) / decode_s if decode_s > 0.0 else 0.0,
        )
