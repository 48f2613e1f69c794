"""Backends: ways to run a Program.  Each is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from edgellm.errors import ArgumentError, BackendError

if TYPE_CHECKING:
    from edgellm.backends.base import Backend

NAMES = ("auto", "native", "reference")
"""What `get_backend` takes."""


def get_backend(name: str = "auto") -> Backend:
    """Return the backend called `name`; ``auto`` is the fastest that works here.

    Raises ArgumentError for an unknown name, BackendError where the backend cannot work on this machine.
    """
    if name not in NAMES:
        raise ArgumentError(f"no backend is called {name!r}; the names are {', '.join(NAMES)}")
    if name != "reference":
        reason = _why_not_native()
        if reason is None:
            native: Backend = import_module("edgellm.backends.native").NativeBackend()
            return native
        if name == "native":
            raise BackendError(f"the native backend cannot be used: {reason}")
    from edgellm.backends.reference import ReferenceBackend

    return ReferenceBackend()


def _why_not_native() -> str | None:
    try:
        native = import_module("edgellm.backends.native")
    except ImportError as error:
        return str(error)
    reason: str | None = native.available()
    return reason
