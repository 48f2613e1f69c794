"""The chat through a pipe: every line is a message, answers alone on standard output."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import Result

from edgellm.errors import TemplateError
from tests.support.scripted import ScriptedModel

Install = Callable[..., ScriptedModel]
Invoke = Callable[..., Result]


def echo(messages: list[dict[str, str]]) -> list[str]:
    """Say the last message in capitals, word by word."""
    return [word.upper() + " " for word in messages[-1]["content"].split()]


def test_each_line_is_a_message_and_the_conversation_goes_on(install: Install, invoke: Invoke) -> None:
    model = install(["a ", "reply"])
    result = invoke("chat", "m.gguf", "--system", "Be nice.", input="hello\n\nagain")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "a reply\na reply\n", "")
    assert model.asked[1] == [
        {"role": "system", "content": "Be nice."},
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "a reply"},
        {"role": "user", "content": "again"},
    ]
    assert model.closed


def test_no_input_at_all_exits_with_0(install: Install, invoke: Invoke) -> None:
    model = install(["x"])
    result = invoke("chat", input="")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    assert model.asked == []


def test_a_missing_standard_input_is_the_end(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    from edgellm.cli.prompt import open_prompt

    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(EOFError):
        open_prompt().read()


def test_a_model_without_a_chat_format_is_refused_with_advice(install: Install, invoke: Invoke) -> None:
    install(["x"], has_chat_template=False)
    result = invoke("chat", input="hello\n")
    assert result.exit_code == 1
    assert "edgellm run" in result.stderr


def test_a_failed_message_is_reported_and_forgotten(install: Install, invoke: Invoke) -> None:
    def script(messages: list[dict[str, str]]) -> Iterator[str]:
        if messages[-1]["content"] == "bad":
            raise TemplateError("no\nsuch role")
        yield "fine"

    model = install(script)
    result = invoke("chat", input="bad\ngood\n")
    assert (result.stdout, result.stderr) == ("fine\n", "error: no such role\n")
    assert model.asked[-1] == [{"role": "user", "content": "good"}]
    assert result.exit_code == 1


def test_ctrl_c_keeps_what_was_said(install: Install, invoke: Invoke) -> None:
    def script(messages: list[dict[str, str]]) -> Iterator[str]:
        yield "part"
        if len(messages) == 1:
            signal.raise_signal(signal.SIGINT)
            time.sleep(0.2)
            yield "never shown"

    model = install(script)
    result = invoke("chat", input="one\ntwo\n")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "part\npart\n", "(stopped)\n")
    assert model.asked[1][1] == {"role": "assistant", "content": "part"}


def test_a_reply_stopped_before_its_first_word_leaves_no_trace(install: Install, invoke: Invoke) -> None:
    def script(messages: list[dict[str, str]]) -> Iterator[str]:
        if messages[-1]["content"] == "one":
            signal.raise_signal(signal.SIGINT)
            time.sleep(0.2)
        yield "reply"

    model = install(script)
    result = invoke("chat", input="one\ntwo\n")
    assert result.stdout == "reply\n"
    assert "nothing is kept" in result.stderr
    assert model.asked[1] == [{"role": "user", "content": "two"}]


@pytest.mark.parametrize(
    ("arguments", "truncated", "note"),
    [
        (("--max-tokens", "5"), False, "(max_tokens reached)\n"),
        (("--max-tokens", "5"), True, "(the context is full)\n"),
        ((), False, "(the context is full)\n"),
    ],
)
def test_a_reply_cut_short_says_why(
    install: Install, invoke: Invoke, arguments: tuple[str, ...], truncated: bool, note: str
) -> None:
    def script(_messages: Any) -> Iterator[str]:
        yield "word"
        model.generations[0].truncated = truncated

    model = install(script, finish_reason="length")
    assert invoke("chat", *arguments, input="x\n").stderr == note


def test_whole_oldest_turns_leave_a_full_context(install: Install, invoke: Invoke) -> None:
    model = install(echo, n_ctx=40)
    lines = [f"{i} b c d e f" for i in range(6)]
    result = invoke("chat", "--system", "be brief", "--max-tokens", "6", input="\n".join(lines))
    # Limit is 40 - 6 = 34 tokens: system 2, turns of 12.  The fourth prompt would have 2 + 36 + 6, so turns go
    # until at most 30 are left: 2 + 2 * 12 + 6 = 32 is still too many.
    assert result.stderr.splitlines()[0] == (
        "(the context of 40 tokens is full: the oldest 2 turns are no longer sent to the model)"
    )
    assert [m["content"] for m in model.asked[3]] == ["be brief", lines[2], "2 B C D E F ", lines[3]]
    assert all(m[0] == {"role": "system", "content": "be brief"} for m in model.asked)
    assert all(m[1]["role"] == "user" and m[-1]["role"] == "user" for m in model.asked)
    assert len(model.asked) == 6


def test_a_message_longer_than_the_context_is_an_error_and_the_chat_goes_on(install: Install, invoke: Invoke) -> None:
    model = install(echo, n_ctx=20)
    result = invoke("chat", input="hello\n" + "word " * 21 + "\nagain\n")
    assert result.stdout == "HELLO \nAGAIN \n"
    assert result.stderr == "error: the prompt has 21 tokens, more than n_ctx=20\n"
    assert [m["content"] for m in model.asked[-1]] == ["hello", "HELLO ", "again"]


def test_settings_of_the_command_line_reach_every_message(install: Install, invoke: Invoke) -> None:
    model = install(["x"])
    invoke("chat", "--temperature", "0.5", "--stop", "END", input="a\nb\n")
    assert model.keywords == [{"temperature": 0.5, "stop": ["END"]}] * 2


def test_a_closed_pipe_ends_the_chat_quietly() -> None:
    code = (
        "import edgellm; from pathlib import Path; from edgellm import catalog; from edgellm.cli import main\n"
        "from tests.support.scripted import ScriptedModel\n"
        "edgellm.Model = ScriptedModel(lambda _: ['word '] * 100000).open\n"
        "catalog.resolve = lambda name, **_: Path(name)\n"
        "main(['run', 'hello'])"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.read(5) == b"word "
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(60) == 1
