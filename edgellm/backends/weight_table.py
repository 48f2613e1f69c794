"""The weights of a lowered program: rows of bytes, types and shapes, each thing once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from edgellm.backends.base import Weight
from edgellm.dtypes import by_name
from edgellm.program import Program
from edgellm.program.slopes import alibi_slopes


@dataclass
class WeightTable:
    """Collects rows ``(bytes, type number, n_in, n_out, bytes of a row)``; each method returns the row's number."""

    shapes: Mapping[str, tuple[int, ...]]
    weights: Mapping[str, Weight]
    rows: list[tuple[Any, int, int, int, int]] = field(default_factory=list)
    _found: dict[tuple[Any, ...], int] = field(default_factory=dict)

    def _add_weight(self, key: tuple[Any, ...], row: tuple[Any, int, int, int, int]) -> int:
        self._found[key] = len(self.rows)
        self.rows.append(row)
        return self._found[key]

    def matrix(self, name: str, rows: slice | None = None) -> int:
        """Add a matrix, or some of its rows."""
        n_in, n_all = self.shapes[name]
        first, end = (0, n_all) if rows is None else (rows.start, rows.stop)
        key = (name, "matrix", first, end)
        if key in self._found:
            return self._found[key]
        weight = self.weights[name]
        row_bytes = weight.dtype.row_bytes(n_in)
        data = weight.data[first * row_bytes : end * row_bytes]
        return self._add_weight(key, (data, weight.dtype.id, n_in, end - first, row_bytes))

    def stack(self, name: str) -> int:
        """Add the matrices of all experts, one below the other."""
        if (name, "stack") in self._found:
            return self._found[name, "stack"]
        weight = self.weights[name]
        n_in, n_out, n_expert = self.shapes[name]
        row_bytes = weight.dtype.row_bytes(n_in)
        return self._add_weight((name, "stack"), (weight.data, weight.dtype.id, n_in, n_out * n_expert, row_bytes))

    def vector(self, name: str | None, times: str | None = None, rows: slice = slice(None)) -> int:
        """Add a vector, or a part of it, multiplied by another one; -1 without a name."""
        if name is None:
            return -1
        key = (name, times, rows.start, rows.stop)
        if key in self._found:
            return self._found[key]
        values = floats(self.weights[name])[rows]
        if times is not None:
            values = values * floats(self.weights[times])
        return self._add_floats(key, values)

    def factors(self, name: str, factor: float, inverse: bool) -> int:
        """Add a vector of factors, multiplied by a number."""
        key = (name, "factors", factor, inverse)
        if key in self._found:
            return self._found[key]
        values = floats(self.weights[name])
        return self._add_floats(key, np.float32(factor) / values if inverse else values * np.float32(factor))

    def slopes(self, n_head: int, alibi: float) -> int:
        """Add the slopes of a layer's heads; -1 where there are none."""
        if not alibi:
            return -1
        key = ("", "slopes", n_head, alibi)
        return self._found[key] if key in self._found else self._add_floats(key, np.array(alibi_slopes(n_head, alibi)))

    def numbers(self, values: tuple[float, ...]) -> int:
        """Add a vector of a program's own numbers; -1 without any."""
        if not values:
            return -1
        key = ("", "numbers", *values)
        return self._found[key] if key in self._found else self._add_floats(key, np.array(values))

    def _add_floats(self, key: tuple[Any, ...], values: npt.NDArray[Any]) -> int:
        values = np.ascontiguousarray(values, np.float32)
        return self._add_weight(key, (values, 0, values.size, 1, values.nbytes))

    def taps(self, name: str, channels: int) -> int:
        """Add a convolution's weight the other way round, channels side by side."""
        if (name, "taps") in self._found:
            return self._found[name, "taps"]
        values = np.ascontiguousarray(floats(self.weights[name]).reshape(channels, -1).T)
        return self._add_weight((name, "taps"), (values, 0, values.size, 1, values.nbytes))


def with_constants(program: Program, weights: Mapping[str, Weight]) -> dict[str, Weight]:
    """Return a program's weights: the file's, and the vectors that the program brings itself."""
    brought = {}
    for name, values in program.constants.items():
        data = memoryview(np.array(values, np.float32).tobytes())
        brought[name] = Weight(by_name("F32"), program.weights[name], data)
    return {**weights, **brought}


def floats(weight: Weight) -> npt.NDArray[np.float32]:
    """Return a vector of a float type as float32."""
    if weight.dtype.name == "F32":
        values = np.frombuffer(weight.data, np.float32)
    elif weight.dtype.name == "F16":
        values = np.frombuffer(weight.data, np.float16).astype(np.float32)
    else:
        values = (np.frombuffer(weight.data, np.uint16).astype(np.uint32) << 16).view(np.float32)
    return np.ascontiguousarray(values)
