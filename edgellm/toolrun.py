"""A reply whose tool calls are carried out, and answered, until there are none."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgellm.chat.events import ContentDelta, ToolCall, ToolResult
from edgellm.engine.request import FinishReason, Request, Usage
from edgellm.reply import Reply
from edgellm.tools import Tool, result_text

if TYPE_CHECKING:
    from edgellm.chatting import Turn
    from edgellm.engine.engine import Engine

Start = Callable[[Sequence[Mapping[str, Any]]], "tuple[Request, Turn]"]
"""Begins the reply to a conversation."""


class ToolRun(Reply):
    """A reply in rounds: what the model asks for is done while you iterate or wait, and the model goes on.

    The answer is all that the model said in between and at last.  `messages` has everything that was added to the
    conversation, `tool_calls` the calls of the last round, which are left undone where the rounds were used up:
    `finish_reason` is then "tool_calls".  Errors of tools go to the model as their results.
    """

    def __init__(
        self,
        start: Start,
        messages: Sequence[Mapping[str, Any]],
        engine: Engine,
        owner: object,
        tools: Sequence[Tool],
        rounds: int,
    ) -> None:
        request, turn = start(messages)
        super().__init__(request, engine, owner, None, turn.parser)
        self._begin = start
        self._conversation = list(messages)
        self._n_given = len(messages)
        self._tools = {tool.name: tool for tool in tools}
        self._rounds = rounds
        self._usage = Usage(0, 0, 0)
        self._said: list[str] = []
        self._stopped = False

    def _finish(self) -> bool:
        """End a round: carry out its calls and begin the next one, if there is one."""
        if self._ended:
            return False
        self._ended = True
        self._seen += self._parser.finish()
        self._conversation.append(self._parsed_message())
        calls = self._parser.calls
        if not calls or self._rounds == 0 or self._request.finish_reason != "stop":
            return True
        self._rounds -= 1
        for index, call in enumerate(calls):
            if self._stopped:
                return True
            text = self._carry_out(call)
            self._seen.append(ToolResult(index, call.id, call.name, text))
            self._conversation.append({"role": "tool", "tool_call_id": call.id, "name": call.name, "content": text})
        if not self._stopped:
            self._next_round()
        return True

    def _next_round(self) -> None:
        request, turn = self._begin(self._conversation)
        self._usage = self.usage
        if self._parser.content:
            self._said.append(self._parser.content)
            self._seen.append(ContentDelta("\n\n"))
        self._lost.detach()
        self._lost = weakref.finalize(self, self._engine.cancel, request)
        self._lost.atexit = False
        self._request, self._parser, self._ended = request, turn.parser, False

    def _carry_out(self, call: ToolCall) -> str:
        """The result of a call as text; whatever goes wrong is a result too."""
        tool = self._tools.get(call.name)
        if tool is None:
            return f"error: there is no tool {call.name!r}; there are {', '.join(self._tools)}"
        if call.problem is not None:
            return f"error: {call.problem}"
        try:
            return result_text(tool.call(call.arguments))
        except Exception as error:
            return f"error: {type(error).__name__}: {error}"

    async def _finish_async(self) -> bool:
        # Tools may take their time: not in the event loop.
        return await asyncio.to_thread(self._finish)

    def cancel(self) -> None:
        """End it now, from any thread; a tool that runs is waited for, and no other is begun."""
        self._stopped = True
        super().cancel()

    def close(self) -> None:
        """Cancel it unless it has ended.  May be called twice."""
        self._stopped = True
        super().close()

    @property
    def text(self) -> str:
        """All that the model said, without reasoning and calls: waits for the end."""
        self._wait_for_end()
        return "\n\n".join([*self._said, self._parser.content])

    @property
    def messages(self) -> list[dict[str, Any]]:
        """What was added to the conversation: calls, results, and the last reply.  Waits for the end."""
        self._wait_for_end()
        return [dict(message) for message in self._conversation[self._n_given :]]

    @property
    def usage(self) -> Usage:
        """Token counts of all rounds so far."""
        before, now = self._usage, self._request.usage()
        return Usage(
            before.prompt_tokens + now.prompt_tokens,
            before.completion_tokens + now.completion_tokens,
            before.cached_tokens + now.cached_tokens,
        )

    @property
    def finish_reason(self) -> FinishReason | None:
        """As of a `Reply`, when all rounds are over; None before."""
        if not self._ended:
            return None
        return "cancelled" if self._stopped and self._request.finish_reason == "stop" else super().finish_reason

    @property
    def done(self) -> bool:
        """Whether all rounds are over."""
        return self._ended or self._request.error is not None
