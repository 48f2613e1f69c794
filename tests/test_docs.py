"""What the documentation says is so: its programs run, its links lead somewhere, its commands and tables are true."""

from __future__ import annotations

import ast
import dataclasses
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from edgellm import architectures, backends
from edgellm.backends.native import TYPES
from edgellm.cli import VERBS, main
from edgellm.sampling import SAMPLERS, SamplingParams

ROOT = Path(__file__).parents[1]
PAGES = {str(path.relative_to(ROOT)): path for glob in ("*.md", "docs/*.md", "models/*.md") for path in ROOT.glob(glob)}
README = PAGES["README.md"].read_text()


def blocks(page: str, language: str) -> list[str]:
    """Return the fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGES[page].read_text(), re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """Return the names that a page's headings give themselves."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands() -> Iterator[tuple[str, list[str]]]:
    """Yield every use of the edgellm command in blocks and code spans, with its page."""
    for page, path in PAGES.items():
        lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
        lines += re.findall(r"`(edgellm [^`\n]+)`", re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S))
        for line in lines:
            for part in re.split(r"&&|\|\||[|;]", line):
                words = [word for word in shlex.split(part, comments=True) if not re.fullmatch(r"[A-Z_]+=.*", word)]
                if words and words[0] == "edgellm":
                    yield page, words[1:]


COMMANDS = list(commands())


def test_there_is_something_to_check() -> None:
    assert len(PAGES) >= 4
    assert len(COMMANDS) >= 6
    assert len(blocks("README.md", "python")) >= 1


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    path = PAGES[page]
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if re.match(r"https?:", target):
            continue
        name, _, anchor = target.partition("#")
        found = path.parent / name if name else path
        assert found.exists(), target
        assert not anchor or anchor in anchors(found.read_text()), target


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs")])
def test_files_that_are_named_are_there(page: str) -> None:
    named = re.findall(r"`((?:edgellm|csrc|tests|models|examples|\.ci)/[\w./]+)`", PAGES[page].read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(("page", "words"), COMMANDS, ids=[" ".join(words) for _, words in COMMANDS])
def test_commands_and_their_options_exist(page: str, words: list[str]) -> None:
    assert words[0] in VERBS
    command = main.get_command(click.Context(main), words[0])
    assert command is not None
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    assert {word.partition("=")[0] for word in words[1:] if word.startswith("--")} <= known


def test_the_readmes_commands_are_those_that_ci_runs() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    first = 'pip install . && edgellm run "The capital of France is"'
    tests = 'pip install -e ".[test]" && python -m pytest'
    for line in (first, tests):
        assert line in README
        assert all(part in script for part in line.split(" && "))


def test_the_readmes_programs_run(model_path: Callable[[str], Path]) -> None:
    model_path("smollm2-135m-instruct")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    for program in blocks("README.md", "python"):
        command = [sys.executable, "-W", "error", "-c", program]
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)
        assert (done.returncode, done.stderr) == (0, "")
        assert re.search(r"^(stop|length) Usage\(.*\) \d+ tokens/s \d+$", done.stdout, re.MULTILINE)


def row(name: str) -> str:
    """Return what the README's table says works today."""
    return next(line for line in README.splitlines() if line.startswith(f"| {name} |")).split("|")[2]


def test_the_readme_claims_nothing_that_is_not_there() -> None:
    claims = {"architectures": architectures.names(), "backends": backends.NAMES}
    for name, there in claims.items():
        listed = set(re.findall(r"`([\w-]+)`", row(name)))
        assert len(listed) > 1
        assert listed <= set(there)
    types = set(re.findall(r"\w+", row("weights")))
    assert {"F32", "Q4_K"} <= types <= set(TYPES)


def test_the_table_of_samplers_has_every_step_setting_and_default() -> None:
    text = PAGES["docs/sampling.md"].read_text()
    rows = re.findall(r"^\| (\w+) \| (.*) \|", text.partition("| step |")[2], re.M)
    assert tuple(step for step, _ in rows) == SAMPLERS
    told = re.findall(r"`(\w+)=([^`]+)`", "".join(row for _, row in rows))
    found = {name: ast.literal_eval(value) for name, value in told}
    fields = {field.name: field.default for field in dataclasses.fields(SamplingParams)}
    assert {name: tuple(v) if isinstance(v, list) else v for name, v in found.items()} == {
        name: default for name, default in fields.items() if name not in ("logit_bias", "samplers", "seed")
    }
    assert "\n    " + "  ".join(SAMPLERS) + "\n" in text
