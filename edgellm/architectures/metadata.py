"""Values of a file's metadata, each checked before it is handed out.

A model file is untrusted, so every number is bounded before it divides, multiplies or sizes a list.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sized
from functools import cached_property
from numbers import Integral, Real
from typing import Any

from edgellm.errors import ModelFormatError, UnsupportedModelError

_INT_MAX = 2**31 - 1


class Metadata:
    """The metadata under one architecture's prefix.  Everything raises ModelFormatError naming key and bad value."""

    def __init__(self, architecture: str, metadata: Mapping[str, Any], tensors: Mapping[str, tuple[int, ...]]) -> None:
        self.architecture = architecture
        self.metadata = metadata
        self.tensors = tensors

    @cached_property
    def n_layer(self) -> int:
        """Layers; a file cannot have more of them than tensors."""
        n = self.integer("block_count")
        if n > len(self.tensors):
            raise ModelFormatError(
                f"{self.key('block_count')} = {n}: the file has only {len(self.tensors)} tensors for that many layers"
            )
        return n

    def key(self, name: str) -> str:
        """Return the full metadata key of `name`."""
        return f"{self.architecture}.{name}"

    def integer(self, name: str, default: int | None = None, *, minimum: int = 1) -> int:
        """Return one whole number; without a default the key must be there."""
        value = self._get(name, default)
        return self._integer(self.key(name), value, minimum)

    def number(self, name: str, default: float | None = None, *, minimum: float = 0.0) -> float:
        """Return one finite number of at least `minimum`."""
        return self._number(self.key(name), self._get(name, default), minimum)

    def text(self, name: str, default: str) -> str:
        """Return one string."""
        value = self._get(name, default)
        if not isinstance(value, str):
            raise ModelFormatError(f"{self.key(name)} = {_show(value)}: must be a string")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """Return one boolean."""
        value = self._get(name, default)
        if not isinstance(value, bool):
            raise ModelFormatError(f"{self.key(name)} = {_show(value)}: must be a boolean")
        return value

    def per_layer(self, name: str, default: tuple[int, ...] | None = None, *, minimum: int = 1) -> tuple[int, ...]:
        """Return one whole number per layer, from an array or from one number that holds for all."""
        key = self.key(name)
        if key not in self.metadata and default is not None:
            return default
        value = self._get(name, None)
        if not _is_array(value):
            return (self._integer(key, value, minimum),) * self.n_layer
        if len(value) != self.n_layer:
            raise ModelFormatError(f"{key} has {len(value)} values, but the model has {self.n_layer} layers")
        return tuple(self._integer(f"{key}[{i}]", item, minimum) for i, item in enumerate(value))

    def windows(
        self, period: int, default: int = 0, *, first: bool = False, size: int | None = None
    ) -> tuple[int | None, ...]:
        """Return the attention window of each layer, None where it sees everything.

        Every `period`-th layer sees everything (0: none does), the last of the period or the `first`, unless the
        file has its own period or says it layer by layer.  `default` is the window without a key, `size` one
        whatever the key; a window of 0 turns windows off.
        """
        size = self.integer("attention.sliding_window", default, minimum=0) if size is None else size
        name = "attention.sliding_window_pattern"
        pattern = self.metadata.get(self.key(name), period)
        if _is_array(pattern):
            slides = list(self.per_layer_flags(name))
        else:
            every = self._integer(self.key(name), pattern, 0)
            whole = 0 if first else every - 1
            slides = [every == 0 or i % every != whole for i in range(self.n_layer)]
        return tuple(size if size and slide else None for slide in slides)

    def per_layer_flags(self, name: str) -> tuple[bool, ...]:
        """Return one flag per layer, from an array of booleans or numbers."""
        value = self._get(name, None)
        key = self.key(name)
        if not _is_array(value) or len(value) != self.n_layer:
            raise ModelFormatError(f"{key} = {_show(value)}: must have one value for each of {self.n_layer} layers")
        numbers = (int(x) if isinstance(x, bool) else x for x in value)
        return tuple(self._integer(f"{key}[{i}]", x, 0) > 0 for i, x in enumerate(numbers))

    def is_array(self, name: str) -> bool:
        """Return whether the key holds one value for each layer."""
        return _is_array(self.metadata.get(self.key(name)))

    def numbers_per_layer(self, name: str) -> tuple[float, ...]:
        """Return one number of at least 0 for each layer, from an array or one that holds for all; 0 without."""
        value = self.metadata.get(self.key(name), 0.0)
        values = list(value) if _is_array(value) else [value] * self.n_layer
        if len(values) != self.n_layer:
            raise ModelFormatError(
                f"{self.key(name)} has {len(values)} values, but the model has {self.n_layer} layers"
            )
        return tuple(self._number(f"{self.key(name)}[{i}]", item, 0.0) for i, item in enumerate(values))

    def refuse_other(self, name: str, neutral: float = 0) -> None:
        """Raise UnsupportedModelError where the key has another value than the one that changes nothing."""
        value = self.metadata.get(self.key(name), neutral)
        if value != neutral:
            raise UnsupportedModelError(f"{self.key(name)} = {_show(value)} is not supported")

    def _get(self, name: str, default: Any) -> Any:
        value = self.metadata.get(self.key(name), default)
        if value is None:
            raise ModelFormatError(f"the metadata key {self.key(name)} is missing")
        return value

    @staticmethod
    def _number(key: str, value: Any, minimum: float) -> float:
        if isinstance(value, bool) or not isinstance(value, Real):
            raise ModelFormatError(f"{key} = {_show(value)}: must be a number")
        if not math.isfinite(value) or value < minimum:
            raise ModelFormatError(f"{key} = {value}: must be a finite number of at least {minimum:g}")
        return float(value)

    @staticmethod
    def _integer(key: str, value: Any, minimum: int) -> int:
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise ModelFormatError(f"{key} = {_show(value)}: must be one whole number")
        number = int(value)
        if not minimum <= number <= _INT_MAX:
            raise ModelFormatError(f"{key} = {number}: must be from {minimum} to {_INT_MAX}")
        return number


def _is_array(value: Any) -> bool:
    return isinstance(value, Iterable) and isinstance(value, Sized) and not isinstance(value, (str, bytes))


def _show(value: Any) -> str:
    """Return a value for a message, cut short: it comes from the file and may be of any size."""
    if _is_array(value):
        return f"an array of {len(value)}"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
