"""Writing small GGUF files: our own, and those of tests."""

import math
import os
import secrets
import struct
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from edgellm.dtypes import DType
from edgellm.errors import ArgumentError
from edgellm.gguf.encode import encode_pair, encode_string
from edgellm.gguf.header import ALIGNMENT_RULE, DEFAULT_ALIGNMENT, KEY_LIMIT, MAGIC, is_alignment
from edgellm.gguf.paths import PathLike, system_path
from edgellm.gguf.tensors import MAX_DIMS, NAME_LIMIT
from edgellm.gguf.text import quoted
from edgellm.gguf.values import ValueType

# dtype, shape with the fastest dimension first, and a C-contiguous buffer of exactly the bytes needed
Tensor = tuple[DType, tuple[int, ...], Any]


class BinaryFile(Protocol):
    """What ``write`` asks of an open file."""

    def write(self, data: bytes | memoryview, /) -> Any:
        """Write all of ``data``."""


def write(
    target: PathLike | BinaryFile,
    metadata: Mapping[str, Any],
    tensors: Mapping[str, Tensor] | None = None,
    *,
    version: int = 3,
    alignment: int = DEFAULT_ALIGNMENT,
) -> None:
    """Write a GGUF file that ``Reader`` accepts.

    ``metadata`` values are plain Python values, or (ValueType, value) pairs where the type matters.
    A path is written atomically: a temporary file beside it is renamed over it at the end. To a
    file object the bytes are only written. Raises ArgumentError, before anything is written, for what
    the format does not allow.
    """
    pieces = _layout(metadata, tensors or {}, version, alignment)
    if isinstance(target, (str, bytes, os.PathLike)):
        _write_atomically(system_path(target), pieces)
    else:
        _write_all(target.write, pieces)


def _layout(
    metadata: Mapping[str, Any], tensors: Mapping[str, Tensor], version: int, alignment: int
) -> list[bytes | memoryview]:
    if version not in (2, 3):
        raise ArgumentError(f"GGUF version {version} cannot be written; versions 2 and 3 can")
    if not is_alignment(alignment):
        raise ArgumentError(f"alignment {alignment} is not {ALIGNMENT_RULE}")
    pairs = dict(metadata)
    if alignment != DEFAULT_ALIGNMENT:
        pairs.setdefault("general.alignment", alignment)
    if pairs.get("general.alignment", alignment) not in (alignment, (ValueType.UINT32, alignment)):
        raise ArgumentError(f"key 'general.alignment' contradicts the alignment asked for, {alignment}")

    head = [MAGIC, struct.pack("<IQQ", version, len(tensors), len(pairs))]
    for key, value in pairs.items():
        _check_name(key, "key", KEY_LIMIT)
        head.append(encode_pair(key, value))

    body: list[bytes | memoryview] = []
    offset = 0
    for name, (dtype, shape, data) in tensors.items():
        _check_name(name, "tensor name", NAME_LIMIT)
        view = _tensor_bytes(name, dtype, shape, data)
        head.append(encode_string(name))
        head.append(struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, dtype.id, offset))
        padding = -len(view) % alignment
        body += [view, bytes(padding)]
        offset += len(view) + padding
    if tensors:
        head.append(bytes(-sum(map(len, head)) % alignment))
    return [*head, *body]


def _check_name(name: str, what: str, limit: int) -> None:
    if not name or not name.isprintable() or len(name.encode()) > limit:
        raise ArgumentError(f"{what} {quoted(name)} is not 1 to {limit} bytes of printable text")


def _tensor_bytes(name: str, dtype: DType, shape: tuple[int, ...], data: Any) -> memoryview:
    label = f"tensor {quoted(name)}"
    if len(shape) > MAX_DIMS or any(n < 1 for n in shape):
        raise ArgumentError(f"{label} has shape {list(shape)}; at most {MAX_DIMS} dimensions above 0 are allowed")
    row = shape[0] if shape else 1
    try:
        nbytes = dtype.row_bytes(row) * (math.prod(shape) // row)
        view = memoryview(data).cast("B")
    except (ArgumentError, TypeError) as error:
        raise ArgumentError(f"{label} cannot be written: {error}") from None
    if len(view) != nbytes:
        raise ArgumentError(f"{label} of type {dtype} and shape {list(shape)} takes {nbytes} bytes, not {len(view)}")
    return view


def _write_atomically(path: str, pieces: Iterable[bytes | memoryview]) -> None:
    # Not tempfile: its files can be read by their owner only, and a model is for everybody.
    temporary = os.path.join(os.path.dirname(path), f".edgellm-{secrets.token_hex(8)}.part")
    try:
        with open(temporary, "xb") as file:
            _write_all(file.write, pieces)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _write_all(write_bytes: Callable[[bytes | memoryview], Any], pieces: Iterable[bytes | memoryview]) -> None:
    for piece in pieces:
        write_bytes(piece)
