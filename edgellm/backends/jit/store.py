"""Where compiled code is kept: a folder of the user's, named after all that the code depends on.

The files hold machine code, so a folder counts only if nobody else can write to it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from edgellm.config import cache_dir

log = logging.getLogger("edgellm")

_DAYS_KEPT = 30


@cache
def stamp() -> str:
    """Return a hash of our sources, of Numba, Python and the processor."""
    from edgellm.backends.jit.lib import binding, config, numba

    found = hashlib.sha256()
    for name, content in _sources():
        found.update(f"{name} {len(content)} ".encode() + content)
    chosen = config.CPU_NAME, config.CPU_FEATURES
    processor = binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()
    found.update(repr((numba.__version__, sys.version_info[:2], chosen, processor)).encode())
    return found.hexdigest()[:16]


def _sources() -> Iterator[tuple[str, bytes]]:
    """Yield what kernels are made from; of a frozen program, which has no such files, what tells its builds apart."""
    paths = [path for path in sorted(Path(__file__).parent.glob("*.py*")) if path.is_file()]
    for path in paths:
        yield path.name, path.read_bytes()
    if not paths:
        found = os.stat(sys.executable)
        yield sys.executable, repr((found.st_size, found.st_mtime_ns)).encode()


@cache
def cache_folder() -> Path | None:
    """Return the folder for compiled code, or None where nothing can be kept.

    It is the first of these that can be written: ``NUMBA_CACHE_DIR``, the user's cache folder (``EDGELLM_HOME`` moves
    it), and a private folder among the temporary files.
    """
    for folder in _candidates():
        try:
            is_new = not folder.exists()
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not _private(folder):
                log.info("compiled code is not kept in %s: others may write to it", folder)
                continue
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            log.info("compiled code cannot be kept in %s: %s", folder, error)
            continue
        if is_new:
            _forget_old_ones(folder)
        return folder
    log.warning("no folder for compiled code: every process compiles its kernels again; set NUMBA_CACHE_DIR")
    return None


def _candidates() -> Iterator[Path]:
    name = f"kernels-{stamp()}"
    if given := os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(given).expanduser().absolute() / "edgellm" / name
    try:
        yield cache_dir() / name
    except RuntimeError as error:
        log.info("there is no home for compiled code: %s", error)
    user = os.environ.get("USERNAME", "user") if sys.platform == "win32" else os.getuid()
    yield Path(tempfile.gettempdir()) / f"edgellm-{user}-{name}"


def _private(folder: Path) -> bool:
    """Return whether the folder is ours and only ours to write; Windows gives each user folders of their own."""
    if sys.platform == "win32":
        return True
    found = folder.lstat()
    return found.st_uid == os.getuid() and stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o022


def _forget_old_ones(folder: Path) -> None:
    """Remove what other versions compiled long ago; a program that still has it loaded does not notice."""
    prefix = folder.name.rpartition("-")[0]
    for other in folder.parent.glob(f"{prefix}-*"):
        try:
            if other != folder and time.time() - other.lstat().st_mtime > 86400 * _DAYS_KEPT:
                shutil.rmtree(other, ignore_errors=True)
        except OSError:
            continue
