"""Reading safetensors: a JSON header with names, types and places, then the bytes.  Files are not trusted."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgellm.errors import ModelFormatError, ModelNotFoundError, UnsupportedModelError

_HEADER_LIMIT = 100 << 20
_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "U8": "u1", "BOOL": "?"}
INDEX = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor in a file."""

    path: Path
    name: str
    kind: str
    shape: tuple[int, ...]
    """The slowest axis first."""
    start: int
    """Of the tensor's bytes in the file."""

    def array(self) -> npt.NDArray[np.float32]:
        """Read it as float32."""
        raw = np.memmap(self.path, _TYPES[self.kind], "r", self.start, self.shape)
        if self.kind == "BF16":
            return np.asarray((raw.astype(np.uint32) << 16).view(np.float32))
        return np.asarray(raw, np.float32)


def open_folder(folder: Path) -> dict[str, Stored]:
    """Return every tensor of a model's folder by its name, whether it is one file or several.

    Raises ModelNotFoundError where there are none, ModelFormatError for a damaged file.
    """
    index = folder / INDEX
    if index.is_file():
        where = _json(index.read_bytes(), index).get("weight_map")
        if not isinstance(where, dict) or not all(isinstance(name, str) for name in where.values()):
            raise ModelFormatError(f"{index}: weight_map must say which file each tensor is in")
        files = [folder / Path(name).name for name in sorted(set(where.values()))]
    else:
        files = [folder / "model.safetensors"]
    found: dict[str, Stored] = {}
    for path in files:
        if not path.is_file():
            raise ModelNotFoundError(f"there is no file {path}; a model's folder has its weights as safetensors")
        for tensor in _tensors(path):
            if tensor.name in found:
                raise ModelFormatError(f"{path}: the tensor {tensor.name[:80]!r} is in {found[tensor.name].path}, too")
            found[tensor.name] = tensor
    return found


def _tensors(path: Path) -> Iterator[Stored]:
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _HEADER_LIMIT):
            raise ModelFormatError(f"{path}: the header claims {length} bytes, the file has {size}")
        header = _json(file.read(length), path)
    for name, entry in header.items():
        if name != "__metadata__":
            yield _tensor(path, name, entry, 8 + length, size)


def _tensor(path: Path, name: str, entry: Any, base: int, size: int) -> Stored:
    label = f"{path}: the tensor {name[:80]!r}"
    entry = entry if isinstance(entry, dict) else {}
    kind, shape, place = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not _counts(shape) or not _counts(place) or len(place) != 2:
        raise ModelFormatError(f"{label} has no sound shape and data_offsets")
    if kind not in _TYPES:
        raise UnsupportedModelError(f"{label} is of type {str(kind)[:20]!r}; {', '.join(_TYPES)} can be read")
    n_bytes = math.prod(shape) * np.dtype(_TYPES[kind]).itemsize
    if place[1] - place[0] != n_bytes or place[1] > size - base:
        raise ModelFormatError(f"{label} of shape {shape} and type {kind} is not at bytes {place} of {size - base}")
    return Stored(path, name, kind, tuple(shape), base + place[0])


def _counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 1 << 48 for n in value) and len(value) <= 8


def _json(data: bytes, path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ModelFormatError(f"{path}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ModelFormatError(f"{path}: not a JSON object")
    return value


def read_json(path: Path) -> Mapping[str, Any]:
    """Return a file's JSON object.  Raises ModelNotFoundError, ModelFormatError."""
    if not path.is_file():
        raise ModelNotFoundError(f"there is no file {path}")
    return _json(path.read_bytes(), path)
