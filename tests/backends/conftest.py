"""Every backend that this machine can be asked for."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest

from edgellm.backends import get_backend
from edgellm.backends.base import Backend


@pytest.fixture(params=["reference", "native", "numba"])
def backend(request: pytest.FixtureRequest) -> Backend:
    """A backend.  A native one that has not been built is a failure only in CI."""
    if request.param == "native" and find_spec("edgellm._native") is None:
        reason = "edgellm._native is not built"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return get_backend(request.param)
