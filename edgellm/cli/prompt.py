"""Where a chat's messages come from: an edited prompt on a terminal, or plain lines."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from edgellm.cli.ui import is_dumb, is_terminal
from edgellm.errors import ArgumentError

if TYPE_CHECKING:
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent


class Prompt(Protocol):
    """Gives one message after the other."""

    interactive: bool
    """Whether a person sits at it, who wants to be prompted and helped."""

    def read(self) -> str:
        """Return the next message.  Raises EOFError at the end, KeyboardInterrupt on Ctrl-C without a text."""


def open_prompt() -> Prompt:
    """Return an edited prompt where the terminal can do that, else one that reads lines."""
    on_terminal = is_terminal(sys.stdin) and is_terminal(sys.stderr)
    return TerminalPrompt() if on_terminal and not is_dumb() else LinePrompt(interactive=on_terminal)


class LinePrompt:
    """Each line of standard input is a message."""

    def __init__(self, interactive: bool) -> None:
        self.interactive = interactive

    def read(self) -> str:
        """Return the next line."""
        if self.interactive:
            sys.stderr.write("> ")
            sys.stderr.flush()
        try:
            line = sys.stdin.readline() if sys.stdin is not None else ""
        except UnicodeDecodeError as error:
            raise ArgumentError(f"standard input is not {error.encoding} text") from None
        except KeyboardInterrupt:
            self._end_line()
            raise
        if not line:
            self._end_line()
            raise EOFError
        return line.rstrip("\r\n")

    def _end_line(self) -> None:
        if self.interactive:
            sys.stderr.write("\n")


class TerminalPrompt:
    """A prompt with editing and history, drawn on standard error: Enter sends, Alt-Enter starts a new line.

    A pasted text is one message, however many lines it has.
    """

    interactive = True

    def __init__(self) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.output import create_output
        from prompt_toolkit.output.vt100 import Vt100_Output

        output = create_output(stdout=sys.stderr)
        if isinstance(output, Vt100_Output):
            # Asking for the cursor's position would leave the answer in the input of slow terminals.
            output.enable_cpr = False
        self._session: PromptSession[str] = PromptSession(
            [("bold", "> ")],
            multiline=True,
            prompt_continuation="  ",
            history=_history(),
            key_bindings=_keys(),
            output=output,
        )

    def read(self) -> str:
        """Let the user write a message."""
        return self._session.prompt()


def _keys() -> KeyBindings:
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("enter")
    @keys.add("c-j")
    def _send(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-c")
    @keys.add("<sigint>")
    def _interrupt(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt)

    return keys


def _history() -> History:
    """Return the history kept in the user's cache folder, or one in memory where that cannot be written."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    from edgellm import catalog

    path = Path(catalog.cache_dir()) / "chat_history"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # What was said is nobody else's business.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600))
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))
