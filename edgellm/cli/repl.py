"""The chat loop: read a message or a command, answer, keep the conversation within the context."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgellm.cli import slash
from edgellm.cli.conversation import Conversation, Message, Turn
from edgellm.cli.errors import describe
from edgellm.cli.prompt import Prompt
from edgellm.cli.reply import stream
from edgellm.cli.ui import say
from edgellm.errors import EdgeLLMError

if TYPE_CHECKING:
    from edgellm import Generation, Model

REPLY_ROOM = 256
"""Tokens kept free for a reply of no set length, where the context is large enough."""


class Repl:
    """A conversation with a model at a prompt."""

    def __init__(self, model: Model, conversation: Conversation, prompt: Prompt) -> None:
        self.model = model
        self.conversation = conversation
        self.last: Generation | None = None
        self._prompt = prompt
        self._failed = False

    def run(self) -> int:
        """Talk until the user leaves.  Return the exit code: 1 if a message failed with nobody there to see it."""
        interrupted = False
        while True:
            try:
                text = self._prompt.read()
            except EOFError:
                break
            except KeyboardInterrupt:
                if not self._prompt.interactive:
                    raise
                if interrupted:
                    break
                interrupted = True
                say("(Ctrl-C again or Ctrl-D to leave)", dim=True)
                continue
            interrupted = False
            if not self._handle(text):
                break
        return int(self._failed and not self._prompt.interactive)

    def _handle(self, text: str) -> bool:
        """Obey or answer; return False when the user wants to leave."""
        try:
            if (found := slash.parse(text)) is not None:
                return found.command.run(self, found.argument)
            if text.strip():
                self.ask(text)
        except BrokenPipeError:
            raise
        except (EdgeLLMError, OSError) as error:
            self._failed = True
            say(f"error: {describe(error)}", fg="red")
        return True

    def ask(self, text: str) -> None:
        """Answer a new message."""
        self.conversation.turns.append(Turn(text))
        self._answer(before=None)

    def regenerate(self) -> None:
        """Answer the last message again."""
        turn = self.conversation.turns[-1]
        before, turn.assistant = turn.assistant, None
        self._answer(before)

    def _answer(self, before: str | None) -> None:
        """Answer the last turn.  If nothing comes of it, the turn has its answer from `before` again or is gone."""
        turn = self.conversation.turns[-1]
        said: list[str] = []
        finished = False
        try:
            self.last = self.model.chat(self._fitting_messages(), **self.conversation.settings)
            stream(self.last, said)
            finished = self.last.finish_reason != "cancelled"
            if self.last.finish_reason == "length":
                limited = self.conversation.settings.get("max_tokens", -1) >= 0 and not self.last.truncated
                say("(max_tokens reached)" if limited else "(the context is full)", dim=True)
        except KeyboardInterrupt:
            pass
        finally:
            if finished or said:
                turn.assistant = "".join(said)
            elif before is not None:
                turn.assistant = before
            else:
                self.conversation.turns.pop()
        if not finished:
            say("(stopped)" if said else "(stopped before the reply began: nothing is kept)", dim=True)

    def _fitting_messages(self) -> list[Message]:
        """Return the messages to send.  When they outgrow the context, whole turns go, oldest first.

        Then as many go as leave a quarter of the context free: the start of the conversation would otherwise change,
        and all of it be processed again, with every message.
        """
        talk, n_ctx = self.conversation, self.model.info.n_ctx
        wanted = talk.settings.get("max_tokens", 0)
        limit = n_ctx - min(wanted if wanted > 0 else REPLY_ROOM, n_ctx // 4)
        before = talk.first
        while (tokens := self._prompt_tokens()) > limit and talk.drop_oldest():
            limit = n_ctx - n_ctx // 4
        messages = talk.messages()
        if tokens > n_ctx:
            talk.first = before  # The last message alone is too long, as the model will say; nothing need go for it.
        elif gone := talk.first - before:
            turns = "turn is" if gone == 1 else f"{gone} turns are"
            say(f"(the context of {n_ctx} tokens is full: the oldest {turns} no longer sent to the model)", dim=True)
        return messages

    def _prompt_tokens(self) -> int:
        text = self.model.chat_template.render(self.conversation.messages())
        # One more for the token that may have to begin the prompt.
        return len(self.model.tokenize(text, add_special=False, parse_special=True)) + 1
