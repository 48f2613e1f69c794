"""The value types of GGUF metadata."""

from enum import IntEnum

import numpy as np


class ValueType(IntEnum):
    """A metadata value type, with the id it has in the file."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12

    def __str__(self) -> str:
        return self.name.lower()


# struct codes, little endian, of everything that has a fixed size
FORMATS: dict[ValueType, str] = {
    ValueType.UINT8: "<B",
    ValueType.INT8: "<b",
    ValueType.UINT16: "<H",
    ValueType.INT16: "<h",
    ValueType.UINT32: "<I",
    ValueType.INT32: "<i",
    ValueType.FLOAT32: "<f",
    ValueType.BOOL: "<?",
    ValueType.UINT64: "<Q",
    ValueType.INT64: "<q",
    ValueType.FLOAT64: "<d",
}

NUMPY: dict[ValueType, np.dtype[np.generic]] = {kind: np.dtype(code) for kind, code in FORMATS.items()}

INTEGERS = frozenset(kind for kind in FORMATS if kind not in (ValueType.FLOAT32, ValueType.FLOAT64, ValueType.BOOL))
FLOATS = frozenset((ValueType.FLOAT32, ValueType.FLOAT64))
