"""The parts of Numba and llvmlite that kernels are built with, without static types: those differ between versions."""

from __future__ import annotations

from importlib import import_module
from typing import Any

numba: Any = import_module("numba")
config: Any = import_module("numba.core.config")
types: Any = import_module("numba.core.types")
extending: Any = import_module("numba.extending")
caching: Any = import_module("numba.core.caching")
signature: Any = import_module("numba.core.typing").signature
NumbaError: Any = import_module("numba.core.errors").NumbaError
CFunc: Any = import_module("numba.core.ccallback").CFunc
binding: Any = import_module("llvmlite.binding")
ir: Any = import_module("llvmlite.ir")

i1, i8, i16, i32, i64 = (ir.IntType(n) for n in (1, 8, 16, 32, 64))
f32 = ir.FloatType()
int64, int32, float32, void = types.int64, types.int32, types.float32, types.void
