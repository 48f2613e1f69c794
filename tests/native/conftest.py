"""The instruction sets of this machine."""

from __future__ import annotations

import os
from typing import Any

import pytest

from edgellm.backends.base import Backend
from edgellm.backends.reference import ReferenceBackend
from tests.support.native import available

_HERE = available() or ["not built"]


@pytest.fixture(scope="session")
def core() -> Any:
    """The module `edgellm._native`.  Where it has not been built that is a failure only in CI."""
    if available():
        from edgellm import _native

        return _native
    reason = "edgellm._native is not built"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(params=_HERE)
def isa(request: pytest.FixtureRequest, core: Any) -> str:
    """The name of each instruction set."""
    name: str = request.param
    return name


@pytest.fixture
def native(isa: str) -> Backend:
    """A backend for each instruction set."""
    from edgellm.backends.native import NativeBackend

    return NativeBackend(isa)


@pytest.fixture(scope="session")
def best(core: Any) -> Backend:
    """The native backend as users get it, but for EDGELLM_ISA."""
    from edgellm.backends.native import NativeBackend

    return NativeBackend(_HERE[0])


@pytest.fixture(scope="session")
def reference() -> Backend:
    """The backend that defines what ops mean."""
    return ReferenceBackend()
