"""The folder of fetched models: where it is, who may write, and how a finished file lands in it."""

import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from edgellm.config import cache_dir
from edgellm.errors import DownloadError

# (bytes done, bytes in all or None if unknown, phase). Phases: waiting, downloading, unpacking, verifying.
Progress = Callable[[int, int | None, str], None]

CHUNK = 1 << 20
# Left free on the disk beside the model.
MARGIN = 16 << 20
LOCK_POLL_SECONDS = 0.1


def models_dir() -> Path:
    return cache_dir() / "models"


def inside_cache(*parts: str) -> Path:
    """A path in the folder of models.

    Raises:
        DownloadError: the parts lead out of it.
    """
    root = models_dir()
    path = root.joinpath(*parts)
    if not path.resolve().is_relative_to(root.resolve()) or path == root:
        raise DownloadError(f"{'/'.join(parts)!r} would be stored outside of the cache {root}")
    return path


@contextmanager
def writable(path: Path) -> Iterator[None]:
    """Turns failures to write below `path` into an error that says what to do."""
    try:
        yield
    except ConnectionError:
        # Our own error, or a callback whose listener is gone.
        raise
    except OSError as error:
        raise DownloadError(
            f"cannot write {path}: {error.strerror or error}; free some space, or set EDGELLM_HOME to another folder"
        ) from error


def require_space(folder: Path, wanted: int) -> None:
    """Refuse to begin what the disk cannot hold; `wanted` in bytes."""
    free = shutil.disk_usage(folder).free
    if free < wanted + MARGIN:
        raise DownloadError(
            f"{folder} has {free / 1e6:.0f} MB free, and {(wanted + MARGIN) / 1e6:.0f} MB are needed; "
            "free some space, or set EDGELLM_HOME to a folder on another disk"
        )


@contextmanager
def exclusive(path: Path, progress: Progress) -> Iterator[None]:
    """Holds the lock file at `path`; waits while another process or thread has it.

    The lock ends with the process that holds it, so a crash leaves nothing to clean up.
    """
    with open(path, "a+b") as file:
        while not _try_lock(file):
            progress(0, None, "waiting")
            time.sleep(LOCK_POLL_SECONDS)
        try:
            yield
        finally:
            _unlock(file)


if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: IO[bytes]) -> bool:
        file.seek(0)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(file: IO[bytes]) -> None:
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _try_lock(file: IO[bytes]) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)


def write_verified(
    chunks: Iterable[bytes], temp: Path, *, size: int, sha256: str, progress: Progress, phase: str
) -> None:
    """Write a file and check it; on any failure the file is deleted.

    Raises:
        DownloadError: the bytes have another size or hash than they should.
    """
    digest, done = hashlib.sha256(), 0
    try:
        with open(temp, "wb") as file:
            for chunk in chunks:
                done += len(chunk)
                if done > size:
                    raise DownloadError(f"{temp.name}: more than the expected {size} bytes came")
                digest.update(chunk)
                file.write(chunk)
                progress(done, size, phase)
            file.flush()
            os.fsync(file.fileno())
        check(temp.name, done, digest.hexdigest(), size=size, sha256=sha256)
    except BaseException:
        temp.unlink(missing_ok=True)
        raise


def verify_file(path: Path, *, size: int | None, sha256: str | None, progress: Progress) -> None:
    """Check a file that something else wrote; on failure it is deleted. None means unknown and is not checked."""
    digest, done, total = hashlib.sha256(), 0, path.stat().st_size
    with open(path, "rb+") as file:
        while sha256 is not None and (chunk := file.read(CHUNK)):
            done += len(chunk)
            digest.update(chunk)
            progress(done, total, "verifying")
        os.fsync(file.fileno())
    try:
        check(path.name, total, digest.hexdigest(), size=size, sha256=sha256)
    except DownloadError:
        path.unlink()
        raise


def check(name: str, actual_size: int, actual_sha256: str, *, size: int | None, sha256: str | None) -> None:
    """Compare what came with what the catalog says.

    Raises:
        DownloadError: they differ; the message has both.
    """
    if size is not None and actual_size != size:
        raise DownloadError(f"{name}: {actual_size} bytes came where the catalog says {size}")
    if sha256 is not None and actual_sha256 != sha256:
        raise DownloadError(f"{name}: what came has SHA-256 {actual_sha256} where it should be {sha256}")


def land(temp: Path, target: Path) -> None:
    """Move a verified file to its place, so that it is either there as a whole or not at all."""
    os.replace(temp, target)
    if sys.platform != "win32":
        # The name itself must survive a power failure too.
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
