"""Metadata values as the bytes of a GGUF file."""

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from edgellm.errors import ArgumentError
from edgellm.gguf.array import GGUFArray
from edgellm.gguf.text import quoted
from edgellm.gguf.values import FORMATS, NUMPY, ValueType

_BY_NUMPY = {dtype: kind for kind, dtype in NUMPY.items()}

# smallest and largest value
_LIMITS = {
    ValueType.INT32: (-(1 << 31), (1 << 31) - 1),
    ValueType.UINT32: (0, (1 << 32) - 1),
    ValueType.INT64: (-(1 << 63), (1 << 63) - 1),
    ValueType.UINT64: (0, (1 << 64) - 1),
}


def encode_string(text: str | bytes) -> bytes:
    """A string with its 64-bit length in front."""
    raw = text.encode() if isinstance(text, str) else bytes(text)
    return struct.pack("<Q", len(raw)) + raw


def encode_pair(key: str, value: Any) -> bytes:
    """Key, type and value.

    ``value`` may be a (ValueType, value) pair; with a list or array the type is that of the elements.
    Otherwise ints become uint32, or the first of int32, uint64 and int64 that holds them; floats
    become float32, bytes a string; in arrays of ints the order is int32, int64, uint64. NumPy arrays
    and GGUFArrays keep their type. Raises ArgumentError for values that do not fit.
    """
    label = f"key {quoted(key)}"
    kind = None
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], ValueType):
        kind, value = value
    try:
        if isinstance(value, (list, tuple, np.ndarray, GGUFArray)):
            payload = _encode_array(_element_type(value) if kind is None else kind, value)
            kind = ValueType.ARRAY
        else:
            kind = _scalar_type(value) if kind is None else kind
            payload = _encode_scalar(kind, value)
    except (TypeError, ValueError, OverflowError, struct.error) as error:
        raise ArgumentError(f"{label} cannot be written: {error}") from None
    return encode_string(key) + struct.pack("<I", kind) + payload


def _scalar_type(value: Any) -> ValueType:
    if isinstance(value, bool):
        return ValueType.BOOL
    if isinstance(value, (str, bytes)):
        return ValueType.STRING
    if isinstance(value, np.generic):
        return _numpy_type(value.dtype)
    if isinstance(value, float):
        return ValueType.FLOAT32
    if isinstance(value, int):
        return _integer_type([value], (ValueType.UINT32, ValueType.INT32, ValueType.UINT64, ValueType.INT64))
    raise TypeError(f"GGUF has no type for {type(value).__name__}")


def _element_type(values: Sequence[Any] | np.ndarray[Any, Any] | GGUFArray) -> ValueType:
    if isinstance(values, GGUFArray):
        return values.type
    if isinstance(values, np.ndarray):
        return _numpy_type(values.dtype)
    if not values:
        raise TypeError("an empty array needs an explicit type")
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return _integer_type(values, (ValueType.INT32, ValueType.INT64, ValueType.UINT64))
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        return ValueType.FLOAT32
    kinds = {_scalar_type(value) for value in values}
    if len(kinds) > 1:
        raise TypeError(f"an array mixes {', '.join(sorted(map(str, kinds)))}")
    return kinds.pop()


def _numpy_type(dtype: np.dtype[Any]) -> ValueType:
    kind = _BY_NUMPY.get(dtype.newbyteorder("<"))
    if kind is None:
        raise TypeError(f"GGUF has no type for NumPy's {dtype}")
    return kind


def _integer_type(values: Sequence[int], kinds: Iterable[ValueType]) -> ValueType:
    low, high = min(values), max(values)
    for kind in kinds:
        smallest, largest = _LIMITS[kind]
        if smallest <= low and high <= largest:
            return kind
    raise OverflowError(f"{low if low < 0 else high} does not fit 64 bits")


def _encode_scalar(kind: ValueType, value: Any) -> bytes:
    if kind is ValueType.STRING:
        if not isinstance(value, (str, bytes)):
            raise TypeError(f"{type(value).__name__} is no string")
        return encode_string(value)
    if kind is ValueType.ARRAY:
        raise TypeError("an array is a list or array; the type with it is that of the elements")
    if kind is ValueType.BOOL and not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{type(value).__name__} is no bool")
    if isinstance(value, np.generic):
        value = value.item()
    return struct.pack(FORMATS[kind], value)


def _encode_array(kind: ValueType, values: Sequence[Any] | np.ndarray[Any, Any] | GGUFArray) -> bytes:
    head = struct.pack("<IQ", kind, len(values))
    if kind is ValueType.STRING and isinstance(values, GGUFArray):
        return head + b"".join(map(encode_string, values.bytes_list()))
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise ValueError(f"an array must have one dimension, not {values.ndim}")
        values = values.tolist()
    return head + b"".join(_encode_scalar(kind, value) for value in values)
