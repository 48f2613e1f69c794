"""The command as a whole: help, version, start-up."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import edgellm
from edgellm.cli import VERBS

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("numpy", "rich", "prompt_toolkit", "jinja2", "tokenizers", "sentencepiece", "numba", "huggingface_hub")

Invoke = Callable[..., Result]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a new Python."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=env, timeout=300)


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_every_verb_has_an_example(invoke: Invoke, verb: str) -> None:
    result = invoke(verb, "--help")
    assert result.exit_code == 0
    assert f"  edgellm {verb}" in result.stdout or f"| edgellm {verb}" in result.stdout
    assert all(len(line) <= 90 for line in result.stdout.splitlines())


def test_help_lists_the_verbs_and_loads_nothing_heavy() -> None:
    listed = ", ".join(repr(name) for name in HEAVY)
    code = (
        "import sys; from edgellm.cli import main\n"
        "try: main(['--help'])\n"
        f"finally: print('loaded', [name for name in ({listed}) if name in sys.modules])"
    )
    result = run("-c", code)
    assert (result.returncode, result.stderr) == (0, "")
    assert "loaded []" in result.stdout
    commands = [
        line.split()[0] for line in result.stdout.partition("Commands:")[2].splitlines() if line.startswith("  ")
    ]
    assert tuple(commands) == VERBS


def test_the_module_runs_as_the_command_does() -> None:
    result = run("-m", "edgellm", "--version")
    assert (result.returncode, result.stdout, result.stderr) == (0, f"edgellm {edgellm.__version__}\n", "")


def test_an_unknown_verb_is_wrong_usage(invoke: Invoke) -> None:
    result = invoke("sing")
    assert result.exit_code == 2
    assert "sing" in result.stderr
