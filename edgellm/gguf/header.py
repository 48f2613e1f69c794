"""The head of a GGUF file: magic, version, counts and key-value pairs."""

import struct
from typing import Any

from edgellm.gguf.array import GGUFArray
from edgellm.gguf.cursor import Cursor
from edgellm.gguf.metadata import Metadata
from edgellm.gguf.text import quoted
from edgellm.gguf.values import FORMATS, NUMPY, ValueType

MAGIC = b"GGUF"
DEFAULT_ALIGNMENT = 32
KEY_LIMIT = 65535

# A tensor offset is a whole number of alignments. The format note asks for a multiple of 8, llama.cpp
# for a power of two; we want both. Nothing gains from more than a large page.
ALIGNMENT_RULE = "a power of two from 8 to 16777216"

# A pair takes at least a length, a one-letter key, a type and a one-byte value.
_MIN_PAIR_BYTES = 8 + 1 + 4 + 1

_LOOKALIKES = (
    (b"version https://git-lfs", "a Git LFS pointer; fetch the file itself with `git lfs pull`"),
    (b"<", "a web page; the download address was not that of the file"),
    (b"PK", "a zip archive, perhaps a PyTorch checkpoint"),
    (b"lmgg", "an old GGML file; convert the model again"),
    (b"fmgg", "an old GGMF file; convert the model again"),
    (b"tjgg", "an old GGJT file; convert the model again"),
)


def read_version(cursor: Cursor) -> int:
    """Check magic and version; returns 2 or 3, which differ only in that 3 allows big endian.

    Raises UnsupportedModelError for version 1 (32-bit counts), later versions and big-endian files.
    """
    if cursor.size and not cursor.data.startswith(MAGIC[: cursor.size]):
        hint = next((f": this is {kind}" for start, kind in _LOOKALIKES if cursor.data.startswith(start)), "")
        raise cursor.damaged(f"not a GGUF file, it starts with {cursor.data[:4]!r} instead of {MAGIC!r}{hint}")
    cursor.need(4, "the magic 'GGUF'")
    version = cursor.u32("the GGUF version")
    if version and not version & 0xFFFF:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        raise cursor.unsupported(
            f"a big-endian GGUF file (version {swapped} with swapped bytes); only little-endian files are supported"
        )
    if version == 0:
        raise cursor.damaged("GGUF version 0 does not exist")
    if version == 1:
        raise cursor.unsupported("GGUF version 1 is not supported; convert the model again to get version 3")
    if version > 3:
        raise cursor.unsupported(f"GGUF version {version} is not supported; versions 2 and 3 are")
    return version


def read_metadata(cursor: Cursor, count: int) -> Metadata:
    """Read ``count`` key-value pairs, copying values out of the cursor's data."""
    left = cursor.size - cursor.pos
    if count > left // _MIN_PAIR_BYTES:
        raise cursor.damaged(
            f"the header claims {count} key-value pairs, but the file is {cursor.size} bytes and only {left} are left"
        )
    values: dict[str, tuple[ValueType, Any]] = {}
    for index in range(count):
        key = cursor.name(f"key {index}", KEY_LIMIT)
        label = f"key {quoted(key)}"
        if key in values:
            raise cursor.damaged(f"{label} appears twice")
        kind = _value_type(cursor, label)
        if kind is ValueType.ARRAY:
            values[key] = kind, _read_array(cursor, label)
        elif kind is ValueType.STRING:
            values[key] = kind, cursor.raw_string(label)
        else:
            values[key] = kind, _read_scalar(cursor, kind, label)
    return Metadata(cursor.source, values)


def is_alignment(n: int) -> bool:
    """Whether a number may be the alignment of tensor data."""
    return n in (1 << bits for bits in range(3, 25))


def alignment_of(cursor: Cursor, metadata: Metadata) -> int:
    """The alignment of the tensor data, 32 unless the file says otherwise."""
    alignment = metadata.get_int("general.alignment", DEFAULT_ALIGNMENT)
    if not is_alignment(alignment):
        raise cursor.damaged(f"key 'general.alignment' is {alignment}; it must be {ALIGNMENT_RULE}")
    return alignment


def _value_type(cursor: Cursor, label: str) -> ValueType:
    number = cursor.u32(f"the type of {label}")
    try:
        return ValueType(number)
    except ValueError:
        raise cursor.damaged(f"{label} has value type {number}, which does not exist") from None


def _read_scalar(cursor: Cursor, kind: ValueType, label: str) -> int | float | bool:
    code = FORMATS[kind]
    start = cursor.need(struct.calcsize(code), label)
    if kind is ValueType.BOOL and cursor.data[start] > 1:
        raise cursor.damaged(f"{label} is a bool of value {cursor.data[start]}; 0 and 1 are allowed")
    value: int | float | bool = struct.unpack_from(code, cursor.data, start)[0]
    return value


def _read_array(cursor: Cursor, label: str) -> GGUFArray:
    kind = _value_type(cursor, f"the elements of {label}")
    count = cursor.u64(f"the length of {label}")
    source = f"{cursor.source}: {label}"
    if kind is ValueType.ARRAY:
        raise cursor.unsupported(f"{label} is an array of arrays")
    if kind is ValueType.STRING:
        bounds = cursor.strings(count, label)
        start = int(bounds[0])
        bounds -= start
        return GGUFArray(kind, cursor.data[start : cursor.pos], source, bounds)
    nbytes = count * NUMPY[kind].itemsize
    start = cursor.need(nbytes, f"{label} ({count} x {kind})")
    data = cursor.data[start : start + nbytes]
    if kind is ValueType.BOOL and data.strip(b"\0\1"):
        raise cursor.damaged(f"{label} has bools other than 0 and 1")
    return GGUFArray(kind, data, source)
