"""The kernels a model needs, compiled when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from edgellm.backends.jit import attention, matmul
from edgellm.backends.jit.blocks import BLOCKS
from edgellm.backends.jit.calls import FUNCTIONS
from edgellm.backends.jit.compiling import kernel
from edgellm.backends.jit.formats import FLOATS

TYPES = frozenset({*FLOATS, *BLOCKS})
"""Tensor types with kernels, by ggml's number."""

_MAKERS: dict[str, Callable[[int], Callable[..., None]]] = {
    "attend": attention.attend,
    "store": attention.store,
    "rotate": attention.rotate,
}


@cache
def compiled(topic: str, kind: int) -> Any:
    """Return a kernel: ``matmul`` or ``row`` of a tensor type; ``attend``, ``store`` or ``rotate`` of F32 or F16.

    It has an `address` for other kernels and is callable, without the interpreter lock, as `ctypes`.
    """
    if topic in ("matmul", "row"):
        makers = (matmul.float_matmul, matmul.float_row) if kind in FLOATS else (matmul.block_matmul, matmul.block_row)
        return kernel(makers[topic == "row"](kind))
    return kernel(_MAKERS[topic](kind))


@cache
def row_function(name: str) -> Any:
    """Return one of `calls.FUNCTIONS`, compiled; it has an `address` for as long as the process lives."""
    return kernel(FUNCTIONS[name].python)
