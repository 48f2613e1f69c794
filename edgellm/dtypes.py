"""The tensor types of ggml: one table row per type id that a GGUF file may hold.

A row of a tensor is a whole number of blocks; a block holds ``block`` elements in ``nbytes`` bytes.
Ids and sizes are those of ggml's ``enum ggml_type`` and its block structs. One row differs from the
table in gguf-py: it gives Q8_1 40 bytes, from the time when that block kept two 32-bit floats. The
struct has been two 16-bit floats and 32 bytes, 36 in all, since 2023.
"""

from dataclasses import dataclass

from edgellm.errors import ArgumentError, UnsupportedModelError


@dataclass(frozen=True, slots=True)
class DType:
    """A tensor type: ``block`` elements are stored in ``nbytes`` bytes."""

    id: int
    name: str
    block: int
    nbytes: int

    def row_bytes(self, n: int) -> int:
        """Bytes of a row of ``n`` elements.

        Raises ArgumentError if ``n`` is negative or not a whole number of blocks.
        """
        if n < 0 or n % self.block:
            raise ArgumentError(f"a row of {n} elements is not a whole number of {self.name} blocks of {self.block}")
        return n // self.block * self.nbytes

    def __str__(self) -> str:
        return self.name


DTYPES: tuple[DType, ...] = (
    DType(0, "F32", 1, 4),
    DType(1, "F16", 1, 2),
    DType(2, "Q4_0", 32, 18),
    DType(3, "Q4_1", 32, 20),
    DType(6, "Q5_0", 32, 22),
    DType(7, "Q5_1", 32, 24),
    DType(8, "Q8_0", 32, 34),
    DType(9, "Q8_1", 32, 36),
    DType(10, "Q2_K", 256, 84),
    DType(11, "Q3_K", 256, 110),
    DType(12, "Q4_K", 256, 144),
    DType(13, "Q5_K", 256, 176),
    DType(14, "Q6_K", 256, 210),
    DType(15, "Q8_K", 256, 292),
    DType(16, "IQ2_XXS", 256, 66),
    DType(17, "IQ2_XS", 256, 74),
    DType(18, "IQ3_XXS", 256, 98),
    DType(19, "IQ1_S", 256, 50),
    DType(20, "IQ4_NL", 32, 18),
    DType(21, "IQ3_S", 256, 110),
    DType(22, "IQ2_S", 256, 82),
    DType(23, "IQ4_XS", 256, 136),
    DType(24, "I8", 1, 1),
    DType(25, "I16", 1, 2),
    DType(26, "I32", 1, 4),
    DType(27, "I64", 1, 8),
    DType(28, "F64", 1, 8),
    DType(29, "IQ1_M", 256, 56),
    DType(30, "BF16", 1, 2),
    DType(34, "TQ1_0", 256, 54),
    DType(35, "TQ2_0", 256, 66),
    DType(39, "MXFP4", 32, 17),
    DType(40, "NVFP4", 64, 36),
    DType(41, "Q1_0", 128, 18),
    DType(42, "Q2_0", 64, 18),
)

# Ids that ggml once gave out and took back: such files exist, and their owners deserve the name.
REMOVED: dict[int, str] = {
    4: "Q4_2",
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}

_BY_ID = {dtype.id: dtype for dtype in DTYPES}
_BY_NAME = {dtype.name: dtype for dtype in DTYPES}


def find(type_id: int) -> DType | None:
    """The type with this id, or None if ggml has no such type (any more)."""
    return _BY_ID.get(type_id)


def describe(type_id: int) -> str:
    """A type id in words, for messages; knows removed types too."""
    if dtype := _BY_ID.get(type_id):
        return f"{type_id} ({dtype.name})"
    if type_id in REMOVED:
        return f"{type_id} ({REMOVED[type_id]}, removed from the format)"
    return f"{type_id} (unknown)"


def by_id(type_id: int) -> DType:
    """The type with this id. Raises UnsupportedModelError for removed and unknown ids."""
    if dtype := _BY_ID.get(type_id):
        return dtype
    raise UnsupportedModelError(f"tensor type {describe(type_id)} is not supported")


def by_name(name: str) -> DType:
    """The type with this name, in any case. Raises ArgumentError for other names."""
    if dtype := _BY_NAME.get(name.upper()):
        return dtype
    raise ArgumentError(f"no tensor type is named {name!r}; the names are {', '.join(_BY_NAME)}")
