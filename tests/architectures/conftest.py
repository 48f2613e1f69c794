"""The backends that architectures are tried on."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest

from edgellm.backends import get_backend
from edgellm.backends.base import Backend


class _Backends(dict[str, Backend]):
    """Makes a backend when it is first asked for; where the native one was not built that fails only in CI."""

    def __missing__(self, name: str) -> Backend:
        if name == "native" and find_spec("edgellm._native") is None:
            reason = "edgellm._native is not built"
            if os.environ.get("CI"):
                pytest.fail(reason)
            pytest.skip(reason)
        self[name] = get_backend(name)
        return self[name]


@pytest.fixture(scope="session")
def backends() -> dict[str, Backend]:
    """Backends by name."""
    return _Backends()
