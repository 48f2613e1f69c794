"""How kernels are compiled: no interpreter lock, no fast-math, once per machine.

Three kinds of functions: `inner` ones live in what calls them, `kernel` ones are C functions called by
address, and `entry` ones are called from Python.  Kernels and entries are kept on disk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar, cast

from edgellm.backends.jit.lib import CFunc, caching, float32, int64, numba, void
from edgellm.backends.jit.store import cache_folder, stamp

F = TypeVar("F", bound=Callable[..., Any])

log = logging.getLogger("edgellm")

_OPTIONS = {"nogil": True, "error_model": "numpy", "boundscheck": False}

_TYPES = {"int": int64, "float": float32}


def inner(function: F) -> F:
    """Compile with each function that calls it."""
    options: dict[str, Any] = {**_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(F, numba.njit(**options)(function))


def entry(function: F) -> F:
    """Make a function that Python calls and that runs without the interpreter lock."""
    dispatcher = numba.njit(**_OPTIONS)(function)
    dispatcher._cache = _cache_of(function)
    return cast(F, dispatcher)


def kernel(function: Callable[..., None]) -> Any:
    """Compile a function of integers and floats, as its annotations say, to a C function; has `address`."""
    names = [str(kind) for name, kind in function.__annotations__.items() if name != "return"]
    signature = (tuple(_TYPES[name] for name in names), void)
    compiled = CFunc(function, signature, {}, {"error_model": "numpy", "boundscheck": False})
    compiled._cache = _cache_of(function)
    compiled.compile()
    return compiled


def _cache_of(function: Callable[..., Any]) -> Any:
    return caching.NullCache() if cache_folder() is None else _Cache(function)


class _Locator(caching._CacheLocator):  # type: ignore[misc]
    """Keeps code in our own folder, whether or not the package's folder can be written or has sources at all."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        self._py_file = file
        # One file per kernel: files that processes share for several are mixed up when two of them write at once.
        values = [str(cell.cell_contents) for cell in function.__closure__ or ()]
        self._name = "-".join([str(function.__code__.co_firstlineno), *values])

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> _Locator:
        return cls(function, file)

    def get_cache_path(self) -> str:
        return str(cache_folder())

    def get_source_stamp(self) -> str:
        return stamp()

    def get_disambiguator(self) -> str:
        return self._name


class _Implementation(caching.CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_Locator,)


class _Cache(caching.FunctionCache):  # type: ignore[misc]
    """A cache that can only help: what is damaged is compiled again, what cannot be written is left out."""

    _impl_class = _Implementation

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # A damaged pickle raises nearly anything.
            log.info("compiled code of %s could not be read and is made again: %s", self._name, error)
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:
            log.info("compiled code of %s could not be kept: %s", self._name, error)
