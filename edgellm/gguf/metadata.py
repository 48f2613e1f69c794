"""The key-value pairs of a GGUF file, with access by the type one expects."""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final, Literal, TypeVar

from edgellm.errors import ModelFormatError
from edgellm.gguf.array import GGUFArray
from edgellm.gguf.text import quoted
from edgellm.gguf.values import FLOATS, INTEGERS, ValueType

T = TypeVar("T")


class _Required(Enum):
    REQUIRED = 0


REQUIRED: Final = _Required.REQUIRED
_NoDefault = Literal[_Required.REQUIRED]


class Metadata(Mapping[str, Any]):
    """Keys in file order; values are int, float, bool, str or GGUFArray.

    It owns its bytes, so it outlives the reader. The ``get_*`` methods raise ModelFormatError, naming
    file, key and types, when the value has another type, or is missing and no default was given.
    """

    __slots__ = ("_values", "source")

    def __init__(self, source: str, values: dict[str, tuple[ValueType, Any]]) -> None:
        """``values`` maps a key to its type and value: bytes for strings, GGUFArray for arrays."""
        self.source = source
        self._values = values

    def __getitem__(self, key: str) -> Any:
        kind, value = self._values[key]
        return self._decode(key, value) if kind is ValueType.STRING else value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def type_of(self, key: str) -> ValueType:
        """The type of a value, or of the elements of an array. Raises KeyError."""
        kind, value = self._values[key]
        return value.type if isinstance(value, GGUFArray) else kind

    def get_int(self, key: str, default: T | _NoDefault = REQUIRED) -> int | T:
        """An integer of any width."""
        value: int | T = self._typed(key, default, INTEGERS, "an integer")
        return value

    def get_float(self, key: str, default: T | _NoDefault = REQUIRED) -> float | T:
        """A float; integers are taken too, since some converters write round numbers as such."""
        value = self._typed(key, default, FLOATS | INTEGERS, "a float")
        return float(value) if isinstance(value, int) and key in self._values else value

    def get_bool(self, key: str, default: T | _NoDefault = REQUIRED) -> bool | T:
        """A bool."""
        value: bool | T = self._typed(key, default, frozenset({ValueType.BOOL}), "a bool")
        return value

    def get_str(self, key: str, default: T | _NoDefault = REQUIRED) -> str | T:
        """A string."""
        value = self._typed(key, default, frozenset({ValueType.STRING}), "a string")
        return self._decode(key, value) if isinstance(value, bytes) and key in self._values else value

    def get_array(
        self,
        key: str,
        of: type[int] | type[float] | type[bool] | type[str] | None = None,
        default: T | _NoDefault = REQUIRED,
    ) -> GGUFArray | T:
        """An array; ``of`` says which kind of elements it must have, an array of ints being no array of floats."""
        value: GGUFArray | T = self._typed(key, default, frozenset({ValueType.ARRAY}), "an array")
        if of is not None and isinstance(value, GGUFArray) and value.type not in _ELEMENTS[of]:
            raise self._mismatch(key, f"an array of {of.__name__}")
        return value

    def _typed(self, key: str, default: Any, kinds: frozenset[ValueType], wanted: str) -> Any:
        entry = self._values.get(key)
        if entry is None:
            if default is REQUIRED:
                raise ModelFormatError(f"{self.source}: key {quoted(key)} is missing; {wanted} is needed there")
            return default
        if entry[0] not in kinds:
            raise self._mismatch(key, wanted)
        return entry[1]

    def _mismatch(self, key: str, wanted: str) -> ModelFormatError:
        kind, value = self._values[key]
        found = f"an array of {len(value)} x {value.type}" if isinstance(value, GGUFArray) else str(kind)
        return ModelFormatError(f"{self.source}: key {quoted(key)} is {found}; {wanted} is needed there")

    def _decode(self, key: str, raw: bytes) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise ModelFormatError(f"{self.source}: key {quoted(key)} is not valid UTF-8: {error}") from None

    def __repr__(self) -> str:
        return f"<Metadata of {self.source}: {len(self)} keys>"


_ELEMENTS: dict[type, frozenset[ValueType]] = {
    int: INTEGERS,
    float: FLOATS,
    bool: frozenset({ValueType.BOOL}),
    str: frozenset({ValueType.STRING}),
}
