"""How a failure looks to the user: one line on standard error, and the exit code."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

import click

from edgellm.cli.ui import say
from edgellm.errors import EdgeLLMError

INTERRUPTED = 130
"""The exit code of a command that Ctrl-C ended, as shells have it."""


class Failure(click.ClickException):
    """Shown as ``error: …`` in one line; the exit code is 1."""

    def show(self, file: object = None) -> None:
        say(f"error: {self.message}")


def describe(error: Exception) -> str:
    """Return one line about `error`, fit for a user."""
    if isinstance(error, EdgeLLMError):
        text = str(error) or type(error).__name__
    elif isinstance(error, OSError) and error.strerror:
        text = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    elif isinstance(error, MemoryError):
        text = "not enough memory"
    else:
        text = f"unexpected {type(error).__name__}: {error} (set EDGELLM_DEBUG=1 to see where)"
    return " ".join(text.split())


@contextmanager
def reported() -> Iterator[None]:
    """Turn what goes wrong inside into a `Failure`, or leave it alone under EDGELLM_DEBUG."""
    try:
        yield
    except KeyboardInterrupt:
        raise click.exceptions.Exit(INTERRUPTED) from None
    except (click.ClickException, click.Abort, click.exceptions.Exit):
        raise
    except Exception as error:
        # Click knows how to leave quietly when the reader of our output has gone.
        if os.environ.get("EDGELLM_DEBUG") or (isinstance(error, OSError) and error.errno == errno.EPIPE):
            raise
        raise Failure(describe(error)) from error
