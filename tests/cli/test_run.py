from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import edgellm
from edgellm import catalog
from edgellm.errors import ArgumentError, ModelFormatError
from tests.support.scripted import ScriptedModel

Install = Callable[..., ScriptedModel]
Invoke = Callable[..., Result]


def test_the_answer_alone_is_on_standard_output(install: Install, invoke: Invoke) -> None:
    model = install(["Par", "is", "."])
    result = invoke("run", "--model", "m.gguf", "The capital of France is")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "Paris.\n", "")
    assert str(model.path) == "m.gguf"
    assert model.asked == ["The capital of France is"]
    assert model.keywords == [{"max_tokens": 256}]
    assert model.closed
    assert model.generations[0].closed


def test_a_last_line_end_is_not_doubled(install: Install, invoke: Invoke) -> None:
    install(["one\n", "two\n"])
    assert invoke("run", "x").stdout == "one\ntwo\n"


def test_an_empty_answer_writes_nothing(install: Install, invoke: Invoke) -> None:
    install([])
    assert invoke("run", "x").stdout == ""


@pytest.mark.parametrize("arguments", [("run",), ("run", "-")])
def test_the_prompt_comes_through_a_pipe(install: Install, invoke: Invoke, arguments: tuple[str, ...]) -> None:
    model = install(["ok"])
    assert invoke(*arguments, input="first\nsecond\n").exit_code == 0
    assert model.asked == ["first\nsecond"]


def test_a_pipe_that_is_not_text_is_a_usage_error(install: Install, invoke: Invoke) -> None:
    install(["ok"])
    result = invoke("run", input=b"\xff\xfe")
    assert result.exit_code == 2
    assert "utf-8" in result.stderr


def test_chat_sends_the_prompt_as_a_message(install: Install, invoke: Invoke) -> None:
    model = install(["Hello"])
    assert invoke("run", "--chat", "Hi").stdout == "Hello\n"
    assert model.asked == [[{"role": "user", "content": "Hi"}]]
    assert model.keywords == [{}]


def test_a_given_limit_replaces_that_of_a_continuation(install: Install, invoke: Invoke) -> None:
    model = install(["x"])
    invoke("run", "--max-tokens", "5", "Once")
    assert model.keywords == [{"max_tokens": 5}]


def test_only_options_that_were_given_reach_the_model(install: Install, invoke: Invoke) -> None:
    model = install(["x"])
    invoke(
        "run", "--system", "S", "--temperature", "0", "--seed", "0", "--stop", "a", "--stop", "b", "--max-tokens", "5",
        "--threads", "2", "--n-ctx", "128", "hi",
    )  # fmt: skip
    assert model.keywords == [{"temperature": 0.0, "seed": 0, "stop": ["a", "b"], "max_tokens": 5}]
    assert model.arguments == {"threads": 2, "n_ctx": 128}
    assert model.asked[0][0] == {"role": "system", "content": "S"}


def test_without_a_model_the_first_of_the_catalog_is_used(install: Install, invoke: Invoke) -> None:
    model = install(["x"])
    invoke("run", "hi")
    assert str(model.path) == catalog.entries()[0].name


def test_ctrl_c_cancels_and_exits_with_130(install: Install, invoke: Invoke) -> None:
    model: ScriptedModel

    def script(_prompt: Any) -> Iterator[str]:
        yield "part"
        signal.raise_signal(signal.SIGINT)
        while not model.generations[0]._cancelled:
            time.sleep(0.001)
        yield "never shown"

    model = install(script)
    before = signal.getsignal(signal.SIGINT)
    result = invoke("run", "hi")
    assert (result.exit_code, result.stdout, result.stderr) == (130, "part\n", "")
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_while_loading_exits_with_130(install: Install, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    install([])

    def load(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(edgellm, "Model", load)
    result = invoke("run", "hi")
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "")


def _failing(error: Exception) -> Callable[[Any], Iterator[str]]:
    def script(_prompt: Any) -> Iterator[str]:
        yield "so far"
        raise error

    return script


def test_an_error_is_one_line_on_standard_error(install: Install, invoke: Invoke) -> None:
    install(_failing(ModelFormatError("m.gguf: bad\n  things \x1b[31m happened")))
    result = invoke("run", "hi")
    assert (result.exit_code, result.stdout) == (1, "so far\n")
    assert result.stderr == "error: m.gguf: bad things [31m happened\n"


def test_an_unexpected_error_says_how_to_see_more(install: Install, invoke: Invoke) -> None:
    install(_failing(KeyError("oops")))
    result = invoke("run", "hi")
    assert result.exit_code == 1
    assert result.stderr == "error: unexpected KeyError: 'oops' (set EDGELLM_DEBUG=1 to see where)\n"


def test_debugging_lets_the_traceback_through(
    install: Install, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGELLM_DEBUG", "1")
    install(_failing(ArgumentError("temperature")))
    assert isinstance(invoke("run", "hi").exception, ArgumentError)


def test_wrong_usage_exits_with_2(install: Install, invoke: Invoke) -> None:
    install([])
    assert invoke("run", "--temperature", "hot", "hi").exit_code == 2
    assert invoke("run", "--nonsense", "hi").exit_code == 2
    assert invoke("nonsense").exit_code == 2


def test_text_for_a_real_model_without_vocabulary_is_one_line(gguf_file: Callable[..., Path], invoke: Invoke) -> None:
    result = invoke("run", "--backend", "reference", "--model", str(gguf_file()), "hi")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no vocabulary" in result.stderr
    assert len(result.stderr.splitlines()) == 1
