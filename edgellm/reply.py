"""What `chat` returns: a generation that knows reasoning, answer and tool calls apart."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from edgellm.chat.events import ContentDelta, Event, ToolCall
from edgellm.engine.generation import Generation
from edgellm.errors import EdgeLLMError

_log = logging.getLogger("edgellm")

if TYPE_CHECKING:
    from edgellm.chat.parser import ReplyParser
    from edgellm.engine.engine import Engine
    from edgellm.engine.request import FinishReason, Request


class Reply(Generation):
    """A reply being written.  Iterate it for the chunks of the answer, or `events` for everything as it comes.

    `text` (and `content`, which is the same) is the answer alone; `reasoning`, `tool_calls` and `message` wait for the
    end as `text` does.  For all else see `Generation`.
    """

    def __init__(
        self,
        request: Request,
        engine: Engine,
        owner: object,
        parse: Callable[[str], Any] | None,
        parser: ReplyParser,
    ) -> None:
        super().__init__(request, engine, owner, parse)
        self._parser = parser
        self._seen: list[Event] = []
        self._shown = 0
        self._ended = False

    def __next__(self) -> str:
        """Wait for the next chunk of the answer.  Raises the error that ended the generation, if one did."""
        while (chunk := self._next_chunk()) is None:
            if not self._pull():
                raise StopIteration
        return chunk

    async def __anext__(self) -> str:
        """Wait for the next chunk of the answer without blocking the event loop."""
        while (chunk := self._next_chunk()) is None:
            if not await self._pull_async():
                raise StopAsyncIteration
        return chunk

    def _next_chunk(self) -> str | None:
        while self._shown < len(self._seen):
            event = self._seen[self._shown]
            self._shown += 1
            if isinstance(event, ContentDelta):
                return event.text
        return None

    def _pull(self) -> bool:
        """Wait for more text and read it.  Returns whether there may be more."""
        try:
            self._read(super().__next__())
        except StopIteration:
            return self._finish()
        return True

    async def _pull_async(self) -> bool:
        try:
            self._read(await super().__anext__())
        except StopAsyncIteration:
            return await self._finish_async()
        return True

    def _read(self, chunk: str) -> None:
        self._seen += self._parser.feed(chunk)

    def _finish(self) -> bool:
        """Read what the parser held back; returns whether this was the first time."""
        if self._ended:
            return False
        self._ended = True
        self._seen += self._parser.finish()
        if self._parser.thinking and self._request.finish_reason == "stop":
            _log.warning("the model ended its reply within its reasoning: there is no answer, see Reply.reasoning")
        return True

    async def _finish_async(self) -> bool:
        return self._finish()

    def _wait_for_end(self) -> None:
        while self._pull():
            pass

    def events(self) -> Events:
        """Iterate (``for`` or ``async for``) over all that the reply is made of, from its beginning.

        `ReasoningDelta` and `ContentDelta` have `text`; `ToolCallStart` has `index`, `id` and `name` of a call, and
        `ToolCallDelta` the `index` and a piece of the JSON of its `arguments`.
        """
        return Events(self)

    @property
    def text(self) -> str:
        """The whole answer, without reasoning and calls: waits for the end."""
        self._wait_for_end()
        return self._parser.content

    @property
    def content(self) -> str:
        """The same as `text`."""
        return self.text

    @property
    def reasoning(self) -> str:
        """What the model thought before it answered; empty if it did not.  Waits for the end."""
        self._wait_for_end()
        return self._parser.reasoning

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The functions the model wants called.  Waits for the end."""
        self._wait_for_end()
        return self._parser.calls

    @property
    def raw(self) -> str:
        """The whole text as the model wrote it, with the marks that set its parts apart.  Waits for the end."""
        self._wait_for_end()
        return "".join(self._chunks)

    @property
    def message(self) -> dict[str, Any]:
        """The reply as a message, to be put behind those it answers.  Waits for the end."""
        self._wait_for_end()
        return self._parsed_message()

    def _parsed_message(self) -> dict[str, Any]:
        # A message that only calls has no content, rather than empty content: templates tell these apart.
        content = self._parser.content or (None if self._parser.calls else "")
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if self._parser.reasoning:
            message["reasoning_content"] = self._parser.reasoning
        if self._parser.calls:
            message["tool_calls"] = [call.as_message() for call in self._parser.calls]
        return message

    @property
    def stopped_thinking(self) -> bool:
        """Whether the reasoning came to its end.  If not, nothing of the text is an answer.  Waits for the end."""
        self._wait_for_end()
        return not self._parser.thinking

    @property
    def finish_reason(self) -> FinishReason | None:
        """As of a `Generation`; "tool_calls" where it would be "stop" and the model wants functions called."""
        reason = self._request.finish_reason
        if reason != "stop":
            return reason
        with suppress(EdgeLLMError):
            self._wait_for_end()
        return "tool_calls" if self._parser.calls else "stop"


class Events:
    """The events of a reply, as they come."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self._at = 0

    def __iter__(self) -> Self:
        return self

    def __aiter__(self) -> Self:
        return self

    def _next(self) -> Event | None:
        if self._at >= len(self._reply._seen):
            return None
        self._at += 1
        return self._reply._seen[self._at - 1]

    def __next__(self) -> Event:
        while (event := self._next()) is None:
            if not self._reply._pull():
                raise StopIteration
        return event

    async def __anext__(self) -> Event:
        while (event := self._next()) is None:
            if not await self._reply._pull_async():
                raise StopAsyncIteration
        return event
