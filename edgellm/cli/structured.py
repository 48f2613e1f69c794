"""Options for what a text is to look like, and the keyword arguments they become."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

NAMES = ("schema", "regex", "grammar", "json", "choices")

_OPTIONS = (
    click.option("--schema", metavar="FILE|JSON", help="Make the text JSON that fits this JSON Schema."),
    click.option("--json", is_flag=True, help="Make the text a JSON object."),
    click.option("--regex", metavar="REGEX", help="Make the text a match of this regular expression."),
    click.option("--choice", "choices", multiple=True, metavar="TEXT", help="Make the text one of these; repeatable."),
    click.option("--grammar", metavar="FILE", help="Make the text follow this grammar, in Lark or GBNF."),
)


def structured_options(command: F) -> F:
    """Add the options of structured output."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def structured_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of `Model.generate` that the user gave, files read.

    Raises click.UsageError for a file that cannot be read and for more than one of the options.
    """
    found: dict[str, Any] = {name: given[name] for name in NAMES if given.get(name)}
    if len(found) > 1:
        options = " and ".join("--choice" if name == "choices" else f"--{name}" for name in found)
        raise click.UsageError(f"{options}: a text can follow one of them only.")
    if "choices" in found:
        found["choices"] = list(found["choices"])
    if "schema" in found and not found["schema"].lstrip().startswith("{"):
        found["schema"] = _read("--schema", found["schema"])
    if "grammar" in found:
        found["grammar"] = _read("--grammar", found["grammar"])
    return found


def _read(option: str, path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except OSError as error:
        raise click.UsageError(f"{option}: {error.strerror}: {path}") from None
    except ValueError as error:
        raise click.UsageError(f"{option}: {path} is not UTF-8 text ({error}).") from None
