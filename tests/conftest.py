"""What tests of several areas share: real models, and the backends there are."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from edgellm import catalog
from edgellm.errors import DownloadError

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Shells start background jobs so, and programs that tests run would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(params=["reference", "native", "numba"])
def backend_name(request: pytest.FixtureRequest) -> str:
    """The name of each backend.  A native one that has not been built is a failure only in CI."""
    if request.param == "native" and find_spec("edgellm._native") is None:
        reason = "edgellm._native is not built"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def model_path() -> Callable[[str], Path]:
    """A function from a name of the catalog to its file in the user's cache, fetched if it is not there.

    Where it cannot be had the test is skipped; in CI (environment variable CI) it fails.
    """

    def find(name: str) -> Path:
        try:
            return catalog.resolve(name)
        except DownloadError as error:
            reason = f"the model {name} is not in the cache and could not be fetched: {error}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)

    return find
