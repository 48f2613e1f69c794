"""Real models for the tests that need one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from edgellm import catalog
from edgellm.errors import DownloadError


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
