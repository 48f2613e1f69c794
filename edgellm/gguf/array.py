"""Arrays in GGUF metadata, kept as the bytes of the file until somebody asks."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from edgellm.errors import ModelFormatError
from edgellm.gguf.values import NUMPY, ValueType


class GGUFArray(Sequence[Any]):
    """A read-only sequence of numbers, bools or strings, converted on demand.

    ``type`` is the ValueType of the elements. The bytes are its own: it does not need the file.
    Elements of a string array that are not UTF-8 raise ModelFormatError when read as text;
    ``bytes_list`` gives them as they are.
    """

    __slots__ = ("_bounds", "_data", "_label", "type")

    def __init__(
        self, element_type: ValueType, data: bytes, label: str, bounds: npt.NDArray[np.int64] | None = None
    ) -> None:
        """``data`` holds the elements; ``label`` names file and key in errors. For strings ``bounds`` has
        the position in ``data`` of each 8-byte length, and of the end."""
        self.type = element_type
        self._data = data
        self._label = label
        self._bounds = bounds

    @property
    def is_string(self) -> bool:
        return self._bounds is not None

    def __len__(self) -> int:
        if self._bounds is not None:
            return len(self._bounds) - 1
        return len(self._data) // NUMPY[self.type].itemsize

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            if self._bounds is None:
                return self.numpy()[index].tolist()
            return [self._text(i) for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is outside of an array of {len(self)} elements")
        index %= len(self)
        return self.numpy()[index].item() if self._bounds is None else self._text(index)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def tolist(self) -> list[Any]:
        """All elements as Python ints, floats, bools or strings."""
        if self._bounds is None:
            numbers: list[Any] = self.numpy().tolist()
            return numbers
        try:
            return [raw.decode() for raw in self.bytes_list()]
        except UnicodeDecodeError:
            # Again, one by one, for the error that tells which.
            return [self._text(i) for i in range(len(self))]

    def bytes_list(self) -> list[bytes]:
        """All elements of a string array, undecoded. Raises ModelFormatError for other arrays."""
        if self._bounds is None:
            raise ModelFormatError(f"{self._label} is an array of {self.type}, not of strings")
        data = self._data
        bounds = self._bounds.tolist()
        return [data[start + 8 : end] for start, end in pairwise(bounds)]

    def numpy(self) -> npt.NDArray[Any]:
        """A read-only array of the elements: a view where the bytes are aligned, otherwise a copy.

        Raises ModelFormatError for arrays of strings.
        """
        if self._bounds is not None:
            raise ModelFormatError(f"{self._label} is an array of strings, not of numbers")
        return np.frombuffer(self._data, NUMPY[self.type])

    def _text(self, index: int) -> str:
        assert self._bounds is not None
        start, end = self._bounds[index : index + 2].tolist()
        raw = self._data[start + 8 : end]
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise ModelFormatError(f"{self._label}: string {index} is not valid UTF-8: {error}") from None

    def __repr__(self) -> str:
        return f"<GGUFArray of {len(self)} x {self.type}>"
