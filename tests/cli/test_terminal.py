"""The chat at a terminal: keys, pasted text, Ctrl-C and Ctrl-D."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.terminal import Terminal, needs_terminals

pytestmark = needs_terminals

PROGRAM = """
import time, edgellm
from pathlib import Path
from edgellm import ReasoningDelta, catalog
from edgellm.cli import main
from tests.support.scripted import ScriptedModel

def script(messages):
    last = messages[-1]["content"]
    if last == "forever":
        while True:
            yield "on and on "
            time.sleep(0.01)
    elif last == "recall":
        yield f"<before: {messages[-2]['content'][:9]!r}>"
    elif last == "escape":
        yield from ("<clean \\x1b", "[31mred\\x1b]0;ti", "tle\\x07 \\x9b2Jtext>")
    elif last == "think":
        yield from (ReasoningDelta("so "), ReasoningDelta("\\x1b[31mwell"), "<yes>")
    else:
        yield f"<{len(messages)} messages, {last.count(chr(10)) + 1} lines, {last[:60]!r}>"

edgellm.Model = ScriptedModel(script).open
catalog.resolve = lambda name, **_: Path(name)
main(["chat", "m.gguf"])
"""
CTRL_C, CTRL_D, ENTER, ALT_ENTER, BACKSPACE = "\x03", "\x04", "\r", "\x1b\r", "\x7f"
PROMPT = r"[\r\n]>"

Start = Callable[..., Terminal]


@pytest.fixture
def start(home: Path) -> Iterator[Start]:
    """Start chats and wait for their first prompt."""
    running: list[Terminal] = []

    def begin(**settings: object) -> Terminal:
        running.append(Terminal(PROGRAM, **settings))  # type: ignore[arg-type]
        running[-1].expect("Ctrl-D leaves")
        running[-1].expect(PROMPT)
        return running[-1]

    yield begin
    for terminal in running:
        terminal.__exit__()


def test_ctrl_d_leaves_with_0(start: Start) -> None:
    terminal = start()
    terminal.send(CTRL_D)
    assert terminal.wait() == 0


def test_ctrl_c_twice_leaves_with_0(start: Start) -> None:
    terminal = start()
    terminal.send(CTRL_C)
    terminal.expect("Ctrl-C again")
    terminal.expect(PROMPT)
    terminal.send(CTRL_C)
    assert terminal.wait() == 0


def test_a_message_between_two_ctrl_c_keeps_the_chat(start: Start) -> None:
    terminal = start()
    for _ in range(2):
        terminal.send(CTRL_C)
        terminal.expect("Ctrl-C again")
        terminal.expect(PROMPT)
        terminal.send("hello" + ENTER)
        terminal.expect("messages, 1 lines, 'hello'")
        terminal.expect(PROMPT)
    terminal.send(CTRL_D)
    assert terminal.wait() == 0


def test_ctrl_c_clears_a_text_that_was_begun(start: Start) -> None:
    terminal = start()
    terminal.send("nonsense")
    terminal.expect("nonsense")
    terminal.send(CTRL_C + "hello" + ENTER)
    terminal.expect("<1 messages, 1 lines, 'hello'>")


def test_ctrl_c_stops_a_reply_and_keeps_its_beginning(start: Start) -> None:
    terminal = start()
    terminal.send("forever" + ENTER)
    terminal.expect("on and on on and on")
    terminal.send(CTRL_C)
    terminal.expect(r"\(stopped\)")
    terminal.expect(PROMPT)
    terminal.send("recall" + ENTER)
    terminal.expect("<before: 'on and on'>")


def test_pasted_text_is_one_message(start: Start) -> None:
    terminal = start()
    lines = "\r".join(f"line {i}" for i in range(200))
    terminal.send(f"\x1b[200~{lines}\x1b[201~")
    terminal.send(ENTER)
    terminal.expect("<1 messages, 200 lines, 'line 0")


def test_alt_enter_starts_a_new_line(start: Start) -> None:
    terminal = start()
    terminal.send("one" + ALT_ENTER + "two" + ENTER)
    terminal.expect(r"<1 messages, 2 lines, 'one\\ntwo'>")


def test_backspace_takes_a_whole_wide_character(start: Start) -> None:
    terminal = start()
    terminal.send("你好" + BACKSPACE + ENTER)
    terminal.expect("<1 messages, 1 lines, '你'>")


def test_control_sequences_of_the_model_do_not_reach_the_terminal(start: Start) -> None:
    terminal = start()
    terminal.send("escape" + ENTER)
    terminal.expect("<clean red text>")
    assert "\x1b[31m" not in terminal.raw
    assert "\x1b]0;" not in terminal.raw


def test_answers_go_to_standard_output_and_all_else_to_the_terminal(start: Start) -> None:
    terminal = start(pipe_output=True)
    terminal.send("hello" + ENTER)
    terminal.expect(PROMPT)
    terminal.send("/stats" + ENTER)
    terminal.expect("tokens/s")
    terminal.expect(PROMPT)
    terminal.send(CTRL_D)
    assert terminal.wait() == 0
    assert terminal.stdout == b"<1 messages, 1 lines, 'hello'>\n"


def test_a_dumb_terminal_gets_plain_lines(start: Start) -> None:
    terminal = start(env={"TERM": "dumb"})
    terminal.send("hello\n")
    terminal.expect("<1 messages, 1 lines, 'hello'>")
    terminal.expect(PROMPT)
    terminal.send(CTRL_C)
    terminal.expect("Ctrl-C again")
    terminal.expect(PROMPT)
    terminal.send(CTRL_D)
    assert terminal.wait() == 0
    assert "\x1b" not in terminal.raw


def test_what_was_typed_is_remembered_privately(start: Start, home: Path) -> None:
    first = start()
    first.send("remember me" + ENTER)
    first.expect("<1 messages")
    first.expect(PROMPT)
    first.send(CTRL_D)
    assert first.wait() == 0
    assert stat.S_IMODE((home / "chat_history").stat().st_mode) == 0o600
    second = start()
    second.send("\x1b[A" + ENTER)
    second.expect("<1 messages, 1 lines, 'remember me'>")


def test_a_cache_that_cannot_be_written_does_not_matter(start: Start, home: Path) -> None:
    home.write_text("not a folder")
    terminal = start()
    terminal.send("hello" + ENTER)
    terminal.expect("<1 messages, 1 lines, 'hello'>")


def test_thoughts_are_dimmed_and_stay_out_of_the_conversation(start: Start) -> None:
    terminal = start()
    terminal.send("think" + ENTER)
    terminal.expect(r"so well\s+<yes>")
    assert "\x1b[2mso " in terminal.raw
    assert "\x1b[31m" not in terminal.raw
    terminal.expect(PROMPT)
    terminal.send("recall" + ENTER)
    terminal.expect("<before: '<yes>'>")


def test_thoughts_are_not_in_what_a_pipe_gets(start: Start) -> None:
    terminal = start(pipe_output=True)
    terminal.send("think" + ENTER)
    terminal.expect("so well")
    terminal.expect(PROMPT)
    terminal.send(CTRL_D)
    assert terminal.wait() == 0
    assert terminal.stdout == b"<yes>\n"
