"""What `generate` returns: text as it comes, and everything worth knowing about how it came."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from queue import Empty
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from edgellm.engine.request import FinishReason, Request, Timings, Usage
from edgellm.errors import ArgumentError, IncompleteOutputError

if TYPE_CHECKING:
    import asyncio

    from edgellm.engine.engine import Engine
    from edgellm.sampling import TokenLogprobs


class Generation:
    """Text being generated.  Iterate it (``for`` or ``async for``) for chunks as they come, or take `text`.

    The work goes on in the background whether or not anyone iterates.  Cancelling, closing or losing
    the last reference (leaving the loop of ``for chunk in model.generate(…)`` early) ends it and frees
    its memory.  An error of the model or the engine is raised by the iterator and by `text`.

    A model without a vocabulary yields no chunks; its ids are in `token_ids`.
    """

    def __init__(
        self,
        request: Request,
        engine: Engine,
        owner: object = None,
        parse: Callable[[str], Any] | None = None,
    ) -> None:
        """`owner` is kept alive as long as the generation is; `parse` makes the value of `parsed`."""
        self._request = request
        self._engine = engine
        self._owner = owner
        self._parse = parse
        self._chunks: list[str] = []
        self._lost = weakref.finalize(self, engine.cancel, request)
        self._lost.atexit = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        """Wait for the next chunk.  Raises the error that ended the generation, if one did."""
        self._engine.check_process()
        chunk = self._request.events.get()
        if chunk is None:
            self._end()
            raise StopIteration
        self._chunks.append(chunk)
        return chunk

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        """Wait for the next chunk without blocking the event loop."""
        self._engine.check_process()
        while True:
            try:
                chunk = self._request.events.get_nowait()
            except Empty:
                await self._wait()
                continue
            if chunk is None:
                self._end()
                raise StopAsyncIteration
            self._chunks.append(chunk)
            return chunk

    async def _wait(self) -> None:
        import asyncio

        ready = asyncio.Event()
        self._request.listener = _waker(asyncio.get_running_loop(), ready)
        try:
            if self._request.events.empty():  # nothing came before the listener was in place
                await ready.wait()
        finally:
            self._request.listener = None

    def _end(self) -> None:
        self._request.events.put(None)  # whoever asks again, or waits in another thread, sees the end too
        if self._request.error is not None:
            raise self._request.error

    @property
    def text(self) -> str:
        """The whole text: waits for the end.  Equal to all chunks joined, those already iterated included."""
        for _ in self:
            pass
        return "".join(self._chunks)

    @property
    def parsed(self) -> Any:
        """The value of the whole text: waits for the end.  For ``schema=`` an instance of the pydantic model or the
        type that was given, or the data of the JSON; for ``json=`` a dict; for others the text.

        Raises IncompleteOutputError if the text ended before its value was complete: `finish_reason` is "length" or
        "cancelled", or a stop string came.  Raises ArgumentError if the text follows no schema or grammar; ValueError
        if a validator of a pydantic model refuses the value, or it is nested too deeply for Python.
        """
        if self._parse is None:
            raise ArgumentError("this text follows no schema: ask for one with schema= or json=True")
        text, reason = self.text, self._request.finish_reason
        if reason == "stop" and self._request.text is not None and not self._request.text.stopped:
            return self._parse(text)
        cause, advice = repr(reason), "raise max_tokens, or ask for less"
        if reason == "stop":
            cause, advice = "a stop string", "ask without it"
        raise IncompleteOutputError(f"the text ended by {cause} before its value was complete: {advice}")

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why it ended: "stop" (an end token or a stop string), "length" (`max_tokens` or the end of the context),
        "cancelled"; None while it runs and after an error."""
        return self._request.finish_reason

    @property
    def done(self) -> bool:
        """Whether it has ended, by itself, by a cancel or by an error."""
        return self._request.done

    @property
    def token_ids(self) -> list[int]:
        """The ids chosen so far, among them the end token and those of a stop string, which the text leaves out."""
        return list(self._request.completion)

    @property
    def logprobs(self) -> list[TokenLogprobs] | None:
        """The log-probabilities of `token_ids`, by the model's own logits; None unless ``logprobs=`` asked for them."""
        return None if self._request.top_logprobs is None else list(self._request.logprobs)

    @property
    def prompt_logprobs(self) -> list[TokenLogprobs | None] | None:
        """The log-probabilities of the prompt's tokens, complete with the first chunk; None for the first token, which
        nothing predicts.  None unless ``prompt_logprobs=`` asked for them."""
        found = self._request.prompt_logprobs
        return None if found is None else found.values()

    @property
    def usage(self) -> Usage:
        """Token counts so far."""
        return self._request.usage()

    @property
    def timings(self) -> Timings:
        """Times so far."""
        return self._request.timings()

    @property
    def seed(self) -> int:
        """The seed in use: give it to `generate` with the same arguments for the same text."""
        sampler = self._request.sampler
        return 0 if sampler is None else sampler.seed

    @property
    def truncated(self) -> bool:
        """Whether the context had less room than `max_tokens` asked for."""
        return self._request.truncated

    @property
    def dropped_tokens(self) -> int:
        """Tokens that ``overflow="shift"`` has dropped from the sequence so far, prompt included."""
        return self._request.dropped

    def cancel(self) -> None:
        """End it now, from any thread: `finish_reason` becomes "cancelled", chunks already made can still be read."""
        self._engine.check_process()
        self._engine.cancel(self._request)

    def close(self) -> None:
        """Cancel it unless it has ended.  May be called twice."""
        self._engine.cancel(self._request)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = self._request.finish_reason or ("failed" if self._request.error else "running")
        return f"<{type(self).__name__}: {state}, {len(self._request.completion)} tokens>"


def _waker(loop: asyncio.AbstractEventLoop, ready: asyncio.Event) -> Callable[[], None]:
    def wake() -> None:
        with suppress(RuntimeError):  # the loop was closed while the generation ran on
            loop.call_soon_threadsafe(ready.set)

    return wake
