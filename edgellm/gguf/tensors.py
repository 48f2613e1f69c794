"""The tensor table of a GGUF file, checked against the bytes that follow it."""

import logging
import math
import struct
from collections import Counter
from dataclasses import dataclass

from edgellm import dtypes
from edgellm.dtypes import DType
from edgellm.gguf.cursor import Cursor
from edgellm.gguf.text import quoted

MAX_DIMS = 4
NAME_LIMIT = 64

# name length, one letter, number of dimensions, type, offset
_MIN_ENTRY_BYTES = 8 + 1 + 4 + 4 + 8

# Counts must stay positive in the int64 of NumPy and C.
_MAX_COUNT = (1 << 63) - 1

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies and how it is stored.

    ``shape`` is in GGUF order, fastest dimension first; () is a scalar of one element.
    ``offset`` and ``nbytes`` are in bytes, from the start of the file that is number ``shard``.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    shard: int = 0

    @property
    def n_elements(self) -> int:
        return math.prod(self.shape)


def read_tensors(cursor: Cursor, count: int, alignment: int) -> dict[str, TensorInfo]:
    """Read and check ``count`` table entries, in file order.

    Raises ModelFormatError for whatever does not fit the file, and UnsupportedModelError, listing every
    one, for tensor types that are not in the table of dtypes.
    """
    left = cursor.size - cursor.pos
    if count > left // _MIN_ENTRY_BYTES:
        raise cursor.damaged(
            f"the header claims {count} tensors, but the file is {cursor.size} bytes and only {left} are left"
        )
    entries: dict[str, tuple[tuple[int, ...], int, int]] = {}
    for index in range(count):
        name = cursor.name(f"the name of tensor {index}", NAME_LIMIT)
        if name in entries:
            raise cursor.damaged(f"tensor {quoted(name)} appears twice")
        entries[name] = _read_entry(cursor, f"tensor {quoted(name)}")
    _refuse_unknown_types(cursor, entries)

    # A file without tensors may end before the padding.
    data_start = -(-cursor.pos // alignment) * alignment if entries else cursor.pos
    tensors = {
        name: _checked(cursor, name, shape, dtypes.by_id(type_id), offset, data_start, alignment)
        for name, (shape, type_id, offset) in entries.items()
    }
    _check_layout(cursor, list(tensors.values()), data_start, alignment)
    return tensors


def _read_entry(cursor: Cursor, label: str) -> tuple[tuple[int, ...], int, int]:
    """Shape, type id and offset of one table entry."""
    n_dims = cursor.u32(f"the number of dimensions of {label}")
    if n_dims > MAX_DIMS:
        raise cursor.damaged(f"{label} has {n_dims} dimensions; at most {MAX_DIMS} are allowed")
    start = cursor.need(8 * n_dims, f"the dimensions of {label}")
    shape = struct.unpack_from(f"<{n_dims}Q", cursor.data, start)
    if 0 in shape:
        raise cursor.damaged(f"{label} has shape {list(shape)}; empty tensors are refused")
    if math.prod(shape) > _MAX_COUNT:
        raise cursor.damaged(f"{label} has shape {list(shape)}, more elements than a 64-bit count can hold")
    type_id = cursor.u32(f"the type of {label}")
    offset = cursor.u64(f"the offset of {label}")
    return shape, type_id, offset


def _refuse_unknown_types(cursor: Cursor, entries: dict[str, tuple[tuple[int, ...], int, int]]) -> None:
    counts: Counter[int] = Counter()
    first: dict[int, str] = {}
    for name, (_, type_id, _) in entries.items():
        if dtypes.find(type_id) is None:
            counts[type_id] += 1
            first.setdefault(type_id, name)
    if counts:
        listed = [
            f"{dtypes.describe(type_id)} in {n} tensor{'s' if n > 1 else ''}, first {quoted(first[type_id])}"
            for type_id, n in sorted(counts.items())[:8]
        ]
        if len(counts) > len(listed):
            listed.append(f"and {len(counts) - len(listed)} more")
        raise cursor.unsupported(f"tensor types that are not supported: {'; '.join(listed)}")


def _checked(
    cursor: Cursor, name: str, shape: tuple[int, ...], dtype: DType, offset: int, data_start: int, alignment: int
) -> TensorInfo:
    label = f"tensor {quoted(name)}"
    row = shape[0] if shape else 1
    if row % dtype.block:
        raise cursor.damaged(
            f"{label} has shape {list(shape)} and type {dtype}: rows of {row} elements "
            f"are not a whole number of blocks of {dtype.block}"
        )
    if offset % alignment:
        raise cursor.damaged(f"{label} has offset {offset}, not a multiple of the alignment {alignment}")
    nbytes = math.prod(shape) // dtype.block * dtype.nbytes
    available = cursor.size - data_start
    if nbytes > available or offset > available - nbytes:
        raise cursor.damaged(
            f"file is {cursor.size} bytes, needs at least {data_start + offset + nbytes} for {label} "
            f"({dtype}, shape {list(shape)}, offset {offset}): the download is incomplete or the file is damaged"
        )
    return TensorInfo(name, dtype, shape, data_start + offset, nbytes)


def _check_layout(cursor: Cursor, tensors: list[TensorInfo], data_start: int, alignment: int) -> None:
    """Refuse overlaps; mention bytes that belong to no tensor.

    Both mean that a type has other sizes than the writer's, as happens with ids that forks gave
    another meaning. Padding at the very end may be missing.
    """
    end = data_start
    previous = None
    for tensor in sorted(tensors, key=lambda t: t.offset):
        if previous is not None and tensor.offset < end:
            raise cursor.damaged(f"tensors {quoted(previous.name)} and {quoted(tensor.name)} overlap in the file")
        if tensor.offset - end >= alignment:
            _log.warning(
                "%s: %d unused bytes before tensor %s", cursor.source, tensor.offset - end, quoted(tensor.name)
            )
        end = tensor.offset + tensor.nbytes
        previous = tensor
    trailing = cursor.size - end
    if trailing >= alignment:
        _log.warning("%s: %d unknown bytes after the last tensor", cursor.source, trailing)
