"""The commands of the chat."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.support.scripted import ScriptedModel

Install = Callable[..., ScriptedModel]
Invoke = Callable[..., Result]


@pytest.fixture
def chat(install: Install, invoke: Invoke) -> Callable[..., tuple[ScriptedModel, Result]]:
    """Type lines into a chat with a model that numbers its replies."""

    def talk(*lines: str, arguments: tuple[str, ...] = ()) -> tuple[ScriptedModel, Result]:
        numbers = iter(range(1, 100))

        def script(_messages: Any) -> Iterator[str]:
            yield f"reply {next(numbers)}"

        model = install(script)
        return model, invoke("chat", *arguments, input="".join(f"{line}\n" for line in lines))

    return talk


Chat = Callable[..., tuple[ScriptedModel, Result]]


def test_help_names_every_command(chat: Chat) -> None:
    _, result = chat("/help")
    assert result.stdout == ""
    for name in ("/help", "/reset", "/system", "/regen", "/save", "/load", "/set", "/stats", "/exit"):
        assert name in result.stderr


def test_an_unknown_command_says_so(chat: Chat) -> None:
    model, result = chat("/quit")
    assert result.stderr.startswith("error: unknown command /quit")
    assert model.asked == []


@pytest.mark.parametrize("text", [" /help me", "/etc/hosts is a file", "a /help", "1/2"])
def test_a_slash_does_not_make_every_text_a_command(chat: Chat, text: str) -> None:
    model, result = chat(text)
    assert model.asked[0][0]["content"] == text
    assert result.stderr == ""


def test_exit_leaves_with_0(chat: Chat) -> None:
    model, result = chat("/exit", "hello")
    assert result.exit_code == 0
    assert model.asked == []


def test_reset_forgets_all_but_the_system_message(chat: Chat) -> None:
    model, _ = chat("/system Be nice.", "one", "/reset", "two")
    assert model.asked[1] == [{"role": "system", "content": "Be nice."}, {"role": "user", "content": "two"}]


def test_system_without_text_removes_it(chat: Chat) -> None:
    model, _ = chat("/system", "hello", arguments=("--system", "Be nice."))
    assert model.asked[0] == [{"role": "user", "content": "hello"}]


def test_regen_answers_the_last_message_again(chat: Chat) -> None:
    model, result = chat("one", "two", "/regen", "three")
    assert result.stdout == "reply 1\nreply 2\nreply 3\nreply 4\n"
    assert model.asked[2] == model.asked[1]
    assert [m["content"] for m in model.asked[3]] == ["one", "reply 1", "two", "reply 3", "three"]


def test_regen_needs_a_message(chat: Chat) -> None:
    assert chat("/regen")[1].stderr.startswith("error: there is nothing")


def test_set_changes_shows_and_undoes(chat: Chat) -> None:
    model, result = chat(
        "/set temperature 0.25", "/set top-k=7", "/set temperature", "a", "/set temperature default", "b", "/set"
    )
    assert model.keywords == [{"temperature": 0.25, "top_k": 7}, {"top_k": 7}]
    lines = result.stderr.splitlines()
    assert lines[0] == "temperature is 0.25"
    assert ["top_k", "7"] in [line.split()[:2] for line in lines]
    assert ["seed", "default"] in [line.split()[:2] for line in lines]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/set warmth 1", "unknown setting warmth; there are temperature, "),
        ("/set temperature hot", "temperature must be a number or default, not hot"),
        ("/set top_k 1.5", "top_k must be a whole number or default, not 1.5"),
    ],
)
def test_set_refuses_what_makes_no_sense(chat: Chat, line: str, message: str) -> None:
    assert chat(line)[1].stderr.startswith(f"error: {message}")


def test_stats_show_the_last_reply(chat: Chat) -> None:
    _, result = chat("/stats", "hello there", "/stats")
    assert result.stderr.startswith("error: no reply yet\n")
    for figure in ("2 tokens, 2 of them remembered", "40.0 tokens/s", "0.25 s", "1 token, 12.5 tokens/s", "seed 7"):
        assert figure in result.stderr


def test_a_saved_chat_can_be_loaded(chat: Chat, tmp_path: Path) -> None:
    file = tmp_path / "my chat.json"
    chat("/system Sei nett.", "/set seed 3", "grüß dich", f"/save {file}")
    assert json.loads(file.read_text(encoding="utf-8")) == {
        "edgellm_chat": 1,
        "model": "Scripted",
        "settings": {"seed": 3},
        "messages": [
            {"role": "system", "content": "Sei nett."},
            {"role": "user", "content": "grüß dich"},
            {"role": "assistant", "content": "reply 1"},
        ],
    }
    model, result = chat(f"/load {file}", "und nun?")
    assert [m["content"] for m in model.asked[0]] == ["Sei nett.", "grüß dich", "reply 1", "und nun?"]
    assert model.keywords == [{"seed": 3}]
    assert "(loaded 1 turn from" in result.stderr


def test_saving_leaves_only_the_file_and_replaces_an_old_one(chat: Chat, tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    file.write_text("old")
    chat("hello", f"/save {file}")
    assert json.loads(file.read_text())["messages"]
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["chat.json"]


def test_saving_where_one_cannot_is_an_error_and_the_chat_goes_on(chat: Chat, tmp_path: Path) -> None:
    model, result = chat(f"/save {tmp_path}/nowhere/chat.json", "/save", "hello")
    first, second = result.stderr.splitlines()
    assert first.startswith("error: No such file or directory")
    assert second == "error: /save needs a file name"
    assert len(model.asked) == 1


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        '{"edgellm_chat": 2, "settings": {}, "messages": []}',
        '{"edgellm_chat": 1, "settings": {}}',
        '{"edgellm_chat": 1, "settings": [], "messages": []}',
        '{"edgellm_chat": 1, "settings": {"seed": true}, "messages": []}',
        '{"edgellm_chat": 1, "settings": {"path": 1}, "messages": []}',
        '{"edgellm_chat": 1, "settings": {"stop": "x"}, "messages": []}',
        '{"edgellm_chat": 1, "settings": {}, "messages": [{"role": "assistant", "content": "x"}]}',
        '{"edgellm_chat": 1, "settings": {}, "messages": [{"role": "user"}]}',
        '{"edgellm_chat": 1, "settings": {}, "messages": [{"role": "user", "content": "a"}, '
        '{"role": "system", "content": "x"}]}',
        "\x00\xff",
    ],
)
def test_a_file_that_is_no_chat_is_refused_and_the_chat_stays(chat: Chat, tmp_path: Path, content: str) -> None:
    file = tmp_path / "bad.json"
    file.write_bytes(content.encode("latin-1"))
    model, result = chat("one", f"/load {file}", "two")
    assert result.stderr.startswith(f"error: {file}")
    assert len(result.stderr.splitlines()) == 1
    assert [m["content"] for m in model.asked[1]] == ["one", "reply 1", "two"]
