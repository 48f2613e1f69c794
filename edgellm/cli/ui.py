"""Small things the commands share: messages, clean text, sizes, columns."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

import click

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Characters that a terminal would obey instead of show; newlines and tabs are not among them."""


def say(text: str = "", end: str = "\n", **style: Any) -> None:
    """Write a line to standard error, styled as by `click.style`; a closed or missing stream is not an error."""
    with contextlib.suppress(OSError, ValueError):
        click.echo(_styled(CONTROL.sub("", text), **style) + end, err=True, nl=False)


def escape(text: str) -> str:
    """Return `text` on one line, with what a terminal would not print in backslash form."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def shorten(text: str, limit: int) -> str:
    """Return at most `limit` characters of `text`, the last one an ellipsis if it was longer."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def size(n_bytes: float) -> str:
    """Return a number of bytes for people, in powers of 1000: ``98.4 MB``."""
    return _scaled(n_bytes, (" B", " kB", " MB", " GB", " TB", " PB"))


def count(number: float) -> str:
    """Return a number of things for people: ``134.5M``."""
    return _scaled(number, ("", "k", "M", "B", "T"))


def plural(number: int, noun: str) -> str:
    """Return ``1 thread`` or ``2 threads``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _scaled(number: float, units: Sequence[str]) -> str:
    for unit in units:
        if abs(number) < 999.95 or unit == units[-1]:
            break
        number /= 1000
    return f"{number:.0f}{unit}" if unit == units[0] else f"{number:.1f}{unit}"


def columns(rows: Sequence[Sequence[str]], align: str) -> list[str]:
    """Return `rows` as indented lines of aligned columns; `align` has ``<`` or ``>`` for each column."""
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(len(align))]
    return [
        "  " + "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, align, widths, strict=True)).rstrip()
        for row in rows
    ]


def heading(text: str) -> None:
    """Write a heading to standard output, bold on a terminal."""
    click.echo(_styled(text, bold=True))


def is_dumb() -> bool:
    """Return whether the terminal shows text and nothing else."""
    return os.environ.get("TERM", "").lower() in ("dumb", "unknown")


def _styled(text: str, **style: Any) -> str:
    return text if is_dumb() or os.environ.get("NO_COLOR") or not style else click.style(text, **style)


def is_terminal(stream: object) -> bool:
    """Return whether `stream` (which may be missing or closed) is a terminal."""
    try:
        return bool(stream.isatty())  # type: ignore[attr-defined]
    except (AttributeError, ValueError):
        return False


def allow_any_text() -> None:
    """Let standard output replace characters its encoding lacks, rather than fail in mid-reply."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")
