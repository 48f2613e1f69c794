"""Where the files of this user are: the one setting that all parts share."""

import os
import sys
from pathlib import Path


def cache_dir() -> Path:
    """The folder for everything EdgeLLM keeps: `EDGELLM_HOME`, or the user's cache folder of the platform."""
    if home := os.environ.get("EDGELLM_HOME"):
        return Path(home).expanduser().absolute()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        # The specification says to ignore relative paths.
        base = Path(os.environ.get("XDG_CACHE_HOME", ""))
        base = base if base.is_absolute() else Path.home() / ".cache"
    return base / "edgellm"
