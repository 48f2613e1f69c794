"""The verbs of the catalog: pull and list."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from edgellm import catalog
from edgellm.errors import DownloadError
from tests.support.terminal import Terminal, needs_terminals

Invoke = Callable[..., Result]


def fake_pull(name: str, progress: Any = None, force: bool = False) -> Path:
    for done in (0, 5_000_000, 10_000_000):
        progress(done, 10_000_000, "downloading")
    progress(10_000_000, None, "verifying")
    return Path("/cache") / f"{name}{'-again' if force else ''}.gguf"


def test_pull_writes_the_path_and_tells_the_rest_on_standard_error(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "pull", fake_pull)
    result = invoke("pull", "tiny")
    assert (result.exit_code, result.stdout) == (0, f"{Path('/cache/tiny.gguf')}\n")
    assert result.stderr == "tiny: downloading (10.0 MB)\ntiny: verifying\n"
    assert invoke("pull", "tiny", "--force").stdout == f"{Path('/cache/tiny-again.gguf')}\n"


def test_a_failed_pull_is_one_line(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise DownloadError("no network\n(check the connection)")

    monkeypatch.setattr(catalog, "pull", fail)
    result = invoke("pull", "tiny")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: no network (check the connection)\n"


def test_an_unknown_name_is_an_error(invoke: Invoke) -> None:
    result = invoke("pull", "smolm2")
    assert result.exit_code == 1
    assert "smollm2-135m-instruct" in result.stderr


def test_list_shows_what_there_is_and_what_is_here(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    first = catalog.entries()[0]
    here = [
        catalog.Cached(first.name, Path("/cache/first.gguf"), first.bytes),
        catalog.Cached("hf:me/my/model.gguf", Path("/cache/hf/model.gguf"), 2_000_000),
    ]
    monkeypatch.setattr(catalog, "cached", lambda: here)
    result = invoke("list")
    assert (result.exit_code, result.stderr) == (0, "")
    rows = {line.split()[0]: line.split() for line in result.stdout.splitlines()}
    assert rows[first.name][-1] == str(Path("/cache/first.gguf"))
    assert rows["hf:me/my/model.gguf"][2:4] == ["2.0", "MB"]
    others = [entry.name for entry in catalog.entries()[1:]]
    assert others
    assert all(rows[name][-1] == "-" for name in others)


@needs_terminals
def test_a_terminal_shows_a_bar() -> None:
    code = (
        "from edgellm import catalog; from edgellm.cli import main\n"
        "from tests.cli.test_pull import fake_pull\n"
        "catalog.pull = fake_pull\n"
        "main(['pull', 'tiny'])"
    )
    with Terminal(code, pipe_output=True) as terminal:
        assert terminal.wait() == 0
        assert "tiny: downloading" in terminal.screen
        assert "━" in terminal.screen
        assert terminal.stdout == f"{Path('/cache/tiny.gguf')}\n".encode()
