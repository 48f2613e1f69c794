"""Every program in examples/ runs as it stands, on the real model."""

from __future__ import annotations

import os
import queue
import re
import runpy
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = {path.stem: path for path in sorted((ROOT / "examples").glob("*.py"))}
MODEL = "smollm2-135m-instruct"

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def run(model_path: Callable[[str], Path]) -> Run:
    """Run an example as a user would: ``run("chat", "argument", input="…")``; warnings are errors."""
    model_path(MODEL)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}

    def call(name: str, *arguments: str, input: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "error", str(EXAMPLES[name]), *arguments]
        done = subprocess.run(command, input=input, capture_output=True, text=True, env=env, timeout=300)
        assert done.returncode == 0, done.stderr
        return done

    return call


def test_every_example_is_tested_here() -> None:
    tests = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert set(EXAMPLES) <= tests


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_short_and_says_what_it_shows(name: str) -> None:
    source = EXAMPLES[name].read_text()
    assert source.startswith('"""')
    assert f"python examples/{name}.py" in source
    assert len(source.splitlines()) <= 100


def test_generate(run: Run) -> None:
    text = run("generate", "Once upon", "a time").stdout
    assert text.startswith("Once upon a time")
    assert len(text.strip()) > len("Once upon a time")


def test_stream(run: Run) -> None:
    done = run("stream", "0")
    assert "ended: cancelled" in done.stderr
    assert len(done.stdout.split()) >= 1
    assert re.search(r"text: \d+ tokens, [\d.]+ tokens/s", done.stderr)


def test_chat(run: Run) -> None:
    replies = run("chat", input="What is the capital of France?\nAnd of Italy?\n").stdout.split("> ")[1:3]
    assert all("prompt tokens remembered]" in reply for reply in replies)
    first, second = (int(re.findall(r"\[(\d+) of", reply)[0]) for reply in replies)
    assert first == 0
    assert second >= 16


def test_structured(run: Run) -> None:
    lines = dict(
        line.split(":", 1) for line in run("structured").stdout.splitlines() if not line.startswith((" ", "}"))
    )
    assert lines["object"].strip().startswith("City(name='")
    assert lines["choice"].strip() == "Paris"
    assert re.fullmatch(r"\d{3}-\d{4}", lines["regex"].strip())
    assert re.match(r"\d+ [+=]", lines["grammar"].strip())
    assert "raise max_tokens" in lines["cut"]


def test_sampling(run: Run) -> None:
    lines = dict(line.split(":", 1) for line in run("sampling").stdout.splitlines())
    assert lines["repeated"].strip() == lines["free"].strip() != lines["greedy"].strip()
    assert "." not in lines["sentence"]
    assert lines["sentence"].endswith(" stop")
    forbidden = next(name for name in lines if name.startswith("without "))
    start = forbidden.removeprefix("without ").strip("'")
    assert lines["greedy"].strip()[1:].startswith(start)
    assert not lines[forbidden].strip()[1:].startswith(start)


def test_tools(run: Run) -> None:
    lines = run("tools").stdout.splitlines()
    assert re.match(r"asked for: temperature \{'town': '.+\}$", lines[0])
    assert "[calls temperature]" in lines
    assert any(line.startswith("[temperature returned {") for line in lines)
    assert lines[-1].startswith("added to the conversation: ['assistant', 'tool', 'assistant'")


def test_logits(run: Run) -> None:
    out = run("logits").stdout
    chances = {token: float(chance) for token, chance in re.findall(r"'( \w+)' +([\d.]+)%", out)}
    assert list(chances) == [" capital", " of", " France", " is", " Paris"]
    assert chances[" Paris"] > 50 > chances[" capital"]
    assert 1 < float(re.findall(r"perplexity ([\d.]+)", out)[0]) < 100
    assert "next: '.'" in out


def test_together(run: Run) -> None:
    *texts, speed, stopped = run("together").stdout.splitlines()
    assert [text.strip("'\"").split()[0] for text in texts] == ["The", "Water", "My", "In"]
    assert re.fullmatch(r"\d+ tokens, \d+ tokens/s together", speed)
    assert stopped == "stopped after 0.2 seconds"


class FakeWidget:
    """What the example needs of a Tk widget."""

    def __init__(self, _parent: object = None, **options: Any) -> None:
        self.options = options
        self.content = ""

    def pack(self, **_: Any) -> None: ...

    def bind(self, _event: str, command: Callable[..., None]) -> None:
        self.options["command"] = command

    def see(self, _index: str) -> None: ...

    def get(self) -> str:
        return self.content

    def delete(self, *_: object) -> None:
        self.content = ""

    def insert(self, _index: str, text: str) -> None:
        assert threading.current_thread() is threading.main_thread()
        self.content += text


class FakeRoot:
    """A window whose event loop runs timers until it is destroyed."""

    def __init__(self) -> None:
        self.timers: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.alive = True
        self.close: Callable[[], None] = self.destroy

    def title(self, _text: str) -> None: ...

    def protocol(self, _name: str, command: Callable[[], None]) -> None:
        self.close = command

    def after(self, _ms: int, command: Callable[[], None]) -> None:
        self.timers.put(command)

    def destroy(self) -> None:
        self.alive = False

    def run_until(self, condition: Callable[[], bool]) -> None:
        """Run the loop; no turn of it may wait for the model."""
        end = time.monotonic() + 200
        while not condition():
            assert time.monotonic() < end
            self.timers.get_nowait()()
            time.sleep(0.005)


def test_desktop(model_path: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    model_path(MODEL)
    fake = ModuleType("tkinter")
    fake.__dict__.update(Tk=FakeRoot, Text=FakeWidget, Entry=FakeWidget, Button=FakeWidget)
    monkeypatch.setitem(sys.modules, "tkinter", fake)
    example = runpy.run_path(str(EXAMPLES["desktop"]))
    root = FakeRoot()
    app = example["App"](root)
    root.run_until(lambda: "(ready)" in app.text.content)

    app.entry.content = "What is the capital of France?"
    app.entry.options["command"]()
    assert app.text.content.endswith("> What is the capital of France?\n")
    asked = len(app.text.content)
    root.run_until(lambda: len(app.text.content) > asked)
    app.stop()
    root.run_until(lambda: app.generation is not None and app.generation.done)

    app.entry.content = "Count from one to a hundred, slowly."
    app.entry.options["command"]()
    root.close()
    assert not root.alive
    assert not app.worker.is_alive()
