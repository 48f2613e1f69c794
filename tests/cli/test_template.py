"""`edgellm template`: what a template can do and makes of a conversation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tests.support.tiny import CHATML, vocabulary, write_tiny

Invoke = Callable[..., Result]


@pytest.fixture
def jinja(tmp_path: Path) -> Callable[[str], str]:
    def write(source: str) -> str:
        path = tmp_path / "chat.jinja"
        path.write_text(source, encoding="utf-8")
        return str(path)

    return write


@pytest.fixture
def gguf(tmp_path: Path) -> str:
    named = {"tokenizer__chat_template__tool_use": "{{ tools[0].function.name }}: {{ messages[-1].content }}"}
    return str(
        write_tiny(tmp_path / "m.gguf", vocab=vocabulary(add_bos_token=False), tokenizer__chat_template=CHATML, **named)
    )


def test_facts_and_the_prompt_of_a_sample(invoke: Invoke, jinja: Callable[[str], str]) -> None:
    result = invoke("template", jinja(CHATML + "{{ mood }}"), "--set", "mood=good", "--set", "x=[1]")
    assert (result.exit_code, result.stderr) == (0, "")
    facts = dict(line.strip().split("  ", 1) for line in result.stdout.splitlines() if line.startswith("  "))
    assert facts["roles"].strip() == "system, user, assistant, tool"
    assert facts["system message"].strip() == "has a place of its own"
    assert facts["tools"].strip().startswith("not listed")
    assert facts["reply format"].strip() == "hermes"
    assert facts["other variables"].strip() == "mood"
    assert facts["a reply begins"].strip() == r'"<|turn|>assistant\n"'
    assert result.stdout.endswith("How is the weather in Oslo?<|im_end|><|turn|>assistant\ngood\n")


def test_tools_are_tried_where_a_template_lists_them(invoke: Invoke, jinja: Callable[[str], str]) -> None:
    source = "{% for t in tools %}{{ t | tojson }}{% endfor %}{% for m in messages %}{{ m.content }};{% endfor %}"
    text = invoke("template", jinja(source)).stdout
    assert '"name": "get_weather"' in text
    assert '{"sky": "clear", "celsius": 4};' in text


def test_messages_and_tools_of_ones_own(invoke: Invoke, jinja: Callable[[str], str], tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text('[{"role": "user", "content": "Grüße"}]', encoding="utf-8")
    (tmp_path / "t.json").write_text('[{"function": {"name": "abc"}}]', encoding="utf-8")
    path = jinja("{{ tools[0].function.name if tools }}{{ messages[0].content }}")
    options = ("--messages", str(tmp_path / "m.json"), "--tools", str(tmp_path / "t.json"))
    assert invoke("template", path, *options).stdout.endswith("\nabcGrüße\n")


def test_every_template_of_a_file_is_shown(invoke: Invoke, gguf: str) -> None:
    reports = json.loads(invoke("template", gguf, "--json").stdout)
    assert [report["name"] for report in reports] == ["default", "tool_use"]
    assert reports[0]["prompt"].startswith("<|turn|>system\nYou are helpful")
    assert reports[1]["prompt"] == 'get_weather: {"sky": "clear", "celsius": 4}'
    assert reports[1]["lists_tools"] is True


def test_tokens_are_explained(invoke: Invoke, gguf: str) -> None:
    lines = [line.split() for line in invoke("template", gguf, "--explain").stdout.splitlines()]
    assert ["3", "<|turn|>", "special,", "template"] in lines
    assert ["message", "0", "(system)"] in [line[-3:] for line in lines]


@pytest.mark.parametrize(
    ("source", "words"),
    [("{{ a b }}", "line 1, column 6"), ("{{ raise_exception('Not\x1b[31m you.') }}", "Not[31m you.")],
)
def test_a_broken_template_is_an_exit_code_and_its_own_words(
    invoke: Invoke, jinja: Callable[[str], str], source: str, words: str
) -> None:
    result = invoke("template", jinja(source))
    assert result.exit_code == 1
    assert "This conversation cannot be rendered" in result.stdout
    assert words in result.stdout
    assert "\x1b" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--set", "x"), "NAME=VALUE"),
        (("--set", "messages=[]"), "messages"),
        (("--messages", "BAD"), "is not JSON"),
        (("--tools", "BAD"), "is not JSON"),
    ],
)
def test_wrong_arguments_are_one_line(
    invoke: Invoke, jinja: Callable[[str], str], tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    (tmp_path / "bad.json").write_text("{", encoding="utf-8")
    given = [str(tmp_path / "bad.json") if argument == "BAD" else argument for argument in arguments]
    result = invoke("template", jinja(CHATML), *given)
    assert result.exit_code != 0
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_file_that_is_no_text_is_refused(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "x.jinja").write_bytes(b"\xff\xfe")
    result = invoke("template", str(tmp_path / "x.jinja"))
    assert result.exit_code != 0
    assert "neither a GGUF file nor a template" in result.stderr
