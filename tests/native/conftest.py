"""The instruction sets of this machine."""

from __future__ import annotations

import os
from typing import Any

import pytest

from edgellm import dtypes
from edgellm.backends.base import Backend
from edgellm.backends.reference import ReferenceBackend
from tests.support.native import available

_HERE = available() or ["not built"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out what Numba has no kernels for: it knows the classic tensor types and floats as keys and values."""
    from edgellm.backends.jit.kernels import TYPES

    names = {kind.name: kind.id for kind in dtypes.DTYPES}

    def possible(item: pytest.Item) -> bool:
        params = getattr(getattr(item, "callspec", None), "params", {})
        kinds = {names[value] for value in params.values() if isinstance(value, str) and value in names}
        return params.get("native") != "numba" or (kinds <= TYPES and params.get("kv_type") != "q8_0")

    gone = [item for item in items if not possible(item)]
    config.hook.pytest_deselected(items=gone)
    items[:] = [item for item in items if possible(item)]


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


@pytest.fixture(scope="session", params=_HERE)
def isa(request: pytest.FixtureRequest, core: Any) -> str:
    """The name of each instruction set."""
    name: str = request.param
    return name


@pytest.fixture(scope="session", params=[*_HERE, "numba"])
def native(request: pytest.FixtureRequest) -> Backend:
    """The native backend on each instruction set, and that of Numba, whose arithmetic is the same."""
    if request.param == "numba":
        from edgellm.backends.numba_jit import NumbaBackend

        return NumbaBackend()
    request.getfixturevalue("core")  # Says so where it is not built.
    from edgellm.backends.native import NativeBackend

    return NativeBackend(request.param)


@pytest.fixture(scope="session")
def best(core: Any) -> Backend:
    """The native backend as users get it, but for EDGELLM_ISA."""
    from edgellm.backends.native import NativeBackend

    return NativeBackend(_HERE[0])


@pytest.fixture(scope="session")
def reference() -> Backend:
    """The backend that defines what ops mean."""
    return ReferenceBackend()
