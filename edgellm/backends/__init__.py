"""Backends: ways to run a Program.  Each is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from edgellm.errors import ArgumentError, BackendError

if TYPE_CHECKING:
    from edgellm.backends.base import Backend

NAMES = ("auto", "native", "numba", "reference")
"""What `get_backend` takes."""

_COMPILED = {
    "native": ("edgellm.backends.native", "NativeBackend"),
    "numba": ("edgellm.backends.numba_jit", "NumbaBackend"),
}
"""The fast ones, the fastest first: module and class."""


def get_backend(name: str = "auto") -> Backend:
    """Return the backend called `name`; ``auto`` is the fastest that works here.

    Raises ArgumentError for an unknown name, BackendError where the backend cannot work on this machine.
    """
    if name not in NAMES:
        raise ArgumentError(f"no backend is called {name!r}; the names are {', '.join(NAMES)}")
    if name == "reference":
        return _reference()
    reasons = {}
    for candidate, (module, kind) in _COMPILED.items():
        if name in ("auto", candidate):
            reasons[candidate] = _why_not(module)
            if reasons[candidate] is None:
                found: Backend = getattr(import_module(module), kind)()
                return found
    if name != "auto":
        raise BackendError(f"the {name} backend cannot be used: {reasons[name]}")
    return _reference()


def _reference() -> Backend:
    from edgellm.backends.reference import ReferenceBackend

    return ReferenceBackend()


def _why_not(module: str) -> str | None:
    """Return why a backend cannot be used, or None if it can."""
    try:
        backend = import_module(module)
    except ImportError as error:
        return str(error)
    reason: str | None = backend.available()
    return reason
