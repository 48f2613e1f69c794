"""Paths in the form that the operating system takes, whatever their length and characters."""

import ntpath
import os

PathLike = str | bytes | os.PathLike[str] | os.PathLike[bytes]

# Windows refuses longer paths unless they carry the verbatim prefix; folders are limited to 248.
_WINDOWS_LIMIT = 247


def system_path(path: PathLike) -> str:
    """The path as str; on Windows a long one is made absolute and verbatim."""
    text = os.fsdecode(path)
    return windows_path(os.path.abspath(text)) if os.name == "nt" else text


def windows_path(absolute: str) -> str:
    """An absolute Windows path, with the verbatim prefix if it is too long to go without."""
    if len(absolute) <= _WINDOWS_LIMIT or absolute.startswith("\\\\?\\"):
        return absolute
    normal = ntpath.normpath(absolute)
    if normal.startswith("\\\\"):
        return "\\\\?\\UNC\\" + normal[2:]
    return "\\\\?\\" + normal
