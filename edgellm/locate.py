"""From what a user calls a model to the file it is in."""

from __future__ import annotations

import os
from pathlib import Path

from edgellm.errors import ArgumentError


def locate(model: str | os.PathLike[str]) -> Path:
    """Return the path of a file, or of a model of the catalog, which is fetched if it is not here yet.

    Raises ModelNotFoundError, DownloadError, and ArgumentError for what is neither text nor a path.
    """
    if not isinstance(model, str | os.PathLike):
        raise ArgumentError(f"model must be a path or the name of a model, not {model!r}")
    path = Path(model)
    if os.path.isfile(path):  # The catalog, which takes a while to import, has nothing to add.
        return path
    from edgellm.catalog import resolve

    return resolve(model)
