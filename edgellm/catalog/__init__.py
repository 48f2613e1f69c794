"""Models by name: what is known, what is here, and how to get the rest.

path = catalog.resolve("smollm2-135m-instruct")     # fetched at the first use
path = catalog.resolve("hf:OWNER/REPO/model.gguf")  # a file of a Hugging Face repository
path = catalog.resolve("~/models/my.gguf")          # an existing file always wins
"""

import difflib
import functools
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from edgellm.catalog import cache, hub, wheels
from edgellm.catalog.cache import Progress
from edgellm.catalog.entry import Catalog, Entry, HubFile, Source, WheelMember, load, parse_hub_name
from edgellm.config import cache_dir
from edgellm.errors import DownloadError, ModelNotFoundError

__all__ = [
    "Cached",
    "Entry",
    "HubFile",
    "Progress",
    "WheelMember",
    "cache_dir",
    "cached",
    "default",
    "entries",
    "find",
    "pull",
    "resolve",
]


@dataclass(frozen=True)
class Cached:
    """A model file in the cache: what to call it, where it is, its size in bytes."""

    name: str
    path: Path
    bytes: int


@functools.cache
def _catalog() -> Catalog:
    return load()


def entries() -> list[Entry]:
    """All models of the catalog, in its order."""
    return list(_catalog().entries)


def default() -> Entry:
    """The model to use when the user names none."""
    return find(_catalog().default)


def find(name: str) -> Entry:
    """The catalog's entry of this name or alias; case does not matter.

    Raises:
        ModelNotFoundError: there is none; the message lists names that are near.
    """
    names = {known.casefold(): entry for entry in entries() for known in (entry.name, *entry.aliases)}
    entry = names.get(name.casefold())
    if entry is not None:
        return entry
    near = difflib.get_close_matches(name.casefold(), names, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else f"the catalog has {', '.join(e.name for e in entries())}"
    raise ModelNotFoundError(f"no model is called {name!r}: {hint}")


def resolve(name_or_path: str | os.PathLike[str], *, download: bool = True, progress: Progress | None = None) -> Path:
    """The file of a model, given by path, catalog name or `hf:OWNER/REPO/FILE`; fetched if it is not here.

    Args:
        download: whether it may be fetched.
        progress: called as in `pull`.

    Raises:
        ModelNotFoundError: no such file or name, or it would have to be fetched and may not.
        DownloadError: it could not be fetched.
    """
    path = Path(name_or_path).expanduser()
    # These, unlike Path's methods, take names that no file can have.
    if os.path.isfile(path):
        return path
    if os.path.isdir(path):
        raise ModelNotFoundError(f"{path} is a folder; give the path of a model file")
    name = os.fspath(name_or_path)
    if not name.startswith("hf:") and (isinstance(name_or_path, os.PathLike) or _looks_like_path(name)):
        raise ModelNotFoundError(f"there is no file {path}")
    if download:
        return pull(name, progress=progress)
    target = _target(_wanted(name))
    if not target.is_file():
        raise ModelNotFoundError(f"{name} has not been fetched yet; 'edgellm pull {name}' gets it")
    return target


def _looks_like_path(name: str) -> bool:
    return bool(re.search(r"[/\\]|\.gguf$|^[~.]", name, re.IGNORECASE))


def pull(name: str, progress: Progress | None = None, force: bool = False) -> Path:
    """Fetch a model into the cache, unless it is there; returns its path.

    The file appears under its name only after its size and SHA-256 were checked. An interrupted pull goes on
    where it can. If several processes pull the same model, one works and the others wait for it.

    Args:
        name: a catalog name or `hf:OWNER/REPO/FILE`.
        progress: called with (bytes done, bytes in all or None, phase), where the phase is "waiting",
            "downloading", "unpacking" or "verifying". It may raise, to stop the work.
        force: fetch again even if the file is there.

    Raises:
        ModelNotFoundError: no such name.
        ArgumentError: a name that starts with "hf:" is not of that form.
        DownloadError: no source gave the right file, or the cache cannot be written.
    """
    wanted = _wanted(name)
    target = _target(wanted)
    report = progress or (lambda done, total, phase: None)
    if not force and _complete(target, wanted):
        return target
    with cache.writable(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with cache.exclusive(target.with_name(f".{target.name}.lock"), report):
            # Another process may have fetched it meanwhile.
            if force or not _complete(target, wanted):
                _fetch(wanted, target, report)
    return target


def cached() -> list[Cached]:
    """The models that are here, in the order of the catalog, then files of Hugging Face repositories."""
    found = [Cached(entry.name, _target(entry), entry.bytes) for entry in entries() if _complete(_target(entry), entry)]
    root = cache.models_dir() / "hf"
    for path in sorted(root.glob("*/*/**/*.gguf")):
        relative = path.relative_to(root)
        if path.is_file() and not any(part.startswith(".") for part in relative.parts):
            owner, repo, *file = relative.parts
            repo, _, revision = repo.partition("@")
            name = str(HubFile(owner, repo, "/".join(file), revision or None))
            found.append(Cached(name, path, path.stat().st_size))
    return found


def _wanted(name: str) -> Entry | HubFile:
    return parse_hub_name(name) if name.startswith("hf:") else find(name)


def _target(wanted: Entry | HubFile) -> Path:
    if isinstance(wanted, Entry):
        return cache.inside_cache(wanted.file)
    # Another revision is another file; "@" cannot be part of any other name here.
    repo = wanted.repo + (f"@{wanted.revision}" if wanted.revision else "")
    return cache.inside_cache("hf", wanted.owner, repo, *wanted.file.split("/"))


def _complete(target: Path, wanted: Entry | HubFile) -> bool:
    # The hash was checked when the file landed; the size tells a file that somebody replaced or cut.
    return target.is_file() and (isinstance(wanted, HubFile) or target.stat().st_size == wanted.bytes)


def _fetch(wanted: Entry | HubFile, target: Path, report: Progress) -> None:
    sources: tuple[Source, ...] = (wanted,) if isinstance(wanted, HubFile) else wanted.sources
    size, sha256 = (wanted.bytes, wanted.sha256) if isinstance(wanted, Entry) else (None, None)
    temp = target.with_name(f".{target.name}.temp")
    failures: list[DownloadError] = []
    for number, source in enumerate(sources):
        partial = target.with_name(f".{target.name}.{number}.partial")
        try:
            if isinstance(source, HubFile):
                hub.fetch(source, temp, partial, size=size, sha256=sha256, progress=report)
            elif size is not None and sha256 is not None:
                wheels.fetch(source, temp, partial, size=size, sha256=sha256, progress=report)
            cache.land(temp, target)
        except DownloadError as error:
            failures.append(error)
            continue
        for left in target.parent.glob(f".{target.name}.*.partial"):
            shutil.rmtree(left, ignore_errors=True)
        return
    raise DownloadError("; then ".join(dict.fromkeys(map(str, failures)))) from failures[0]
