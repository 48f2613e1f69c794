"""Engines around a fake Executable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from edgellm.cache.pages import GroupSpec, PageCache
from edgellm.engine.engine import Engine
from edgellm.engine.generation import Generation
from edgellm.engine.limits import SINKS, Overflow, fit, shift_tokens
from edgellm.engine.request import Request, TextOutput
from edgellm.engine.scheduler import Scheduler, Sizes
from edgellm.engine.scoring import PromptLogprobs
from edgellm.sampling import Constraint, LogitsProcessor, Sampler, SamplingParams
from tests.support.fake import FakeExecutable, Rule


@dataclass
class Bench:
    """An engine, what it runs on, and a short way to give it work."""

    engine: Engine
    fake: FakeExecutable
    scheduler: Scheduler
    cache: PageCache
    overflow: Overflow

    def generate(
        self,
        prompt: Sequence[int],
        max_tokens: int | None = None,
        *,
        text: TextOutput | None = None,
        stop_ids: Sequence[int] = (),
        constraint: Constraint | None = None,
        processors: Sequence[LogitsProcessor] = (),
        logprobs: int | None = None,
        prompt_logprobs: int | None = None,
        **sampling: Any,
    ) -> Generation:
        fitted = fit(list(prompt), max_tokens, self.scheduler.sizes.n_ctx, self.overflow)
        params = SamplingParams(**{"temperature": 0.0, **sampling})
        request = Request(
            fitted.prompt,
            max_tokens=fitted.max_tokens,
            sampler=Sampler(params, self.fake.n_vocab, list(prompt), constraint=constraint, processors=processors),
            text=text,
            stop_ids=frozenset(stop_ids),
            score=None if prompt_logprobs is None else PromptLogprobs(prompt, self.fake.n_vocab, prompt_logprobs),
            top_logprobs=logprobs,
        )
        request.truncated, request.dropped = fitted.truncated, fitted.dropped
        self.engine.submit(request)
        return Generation(request, self.engine)

    def ids(self, prompt: Sequence[int], max_tokens: int | None = None, **more: Any) -> list[int]:
        """Generate, wait, return the ids."""
        generation = self.generate(prompt, max_tokens, **more)
        assert generation.text == ""
        return generation.token_ids

    def free_pages(self) -> list[int]:
        return [pool.free for pool in self.cache.pools]


Factory = Callable[..., Bench]


@pytest.fixture
def bench() -> Iterator[Factory]:
    """A factory of engines, closed at the end."""
    made: list[Engine] = []

    def make(
        rule: Rule,
        *,
        n_ctx: int = 256,
        n_batch: int = 64,
        n_running: int = 32,
        n_pages: Sequence[int] | None = None,
        windows: Sequence[int | None] = (None,),
        overflow: Overflow = "error",
        n_vocab: int = 32,
        **engine: Any,
    ) -> Bench:
        pages = n_pages or [-(-n_ctx // 16) + 1] * len(windows)
        fake = FakeExecutable(rule, n_vocab=n_vocab, n_pages=pages, windows=windows)
        cache = PageCache([GroupSpec(window, n) for window, n in zip(windows, pages, strict=True)])
        shift = shift_tokens(n_ctx) if overflow == "shift" else 0
        scheduler = Scheduler(cache, Sizes(n_ctx, n_batch, n_running, n_batch, SINKS, shift))
        made.append(Engine(fake, scheduler, **engine))
        return Bench(made[-1], fake, scheduler, cache, overflow)

    yield make
    for engine in made:
        engine.close()
