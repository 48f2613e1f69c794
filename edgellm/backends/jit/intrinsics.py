"""From a function that writes LLVM code to one that kernels call; and memory, atomics and calls by address."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

from edgellm.backends.jit.lib import (
    extending,
    f32,
    float32,
    i8,
    i32,
    i64,
    int32,
    int64,
    ir,
    signature,
    types,
    void,
)


class Vector(types.Type):  # type: ignore[misc]
    """A value that LLVM keeps in vector registers."""

    def __init__(self, name: str, llvm: Any) -> None:
        super().__init__(name=f"edgellm.{name}")
        self.llvm = llvm


def define(result: Any, *parameters: Any, literal: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Make an intrinsic of ``emit(builder, *values)``; with `literal` its first parameter is a Python integer."""

    def decorate(emit: Callable[..., Any]) -> Any:
        names = list(inspect.signature(emit).parameters)[1:]

        def typing(context: Any, *given: Any) -> Any:
            kind = [given[0].literal_value] if literal else []

            def lower(context: Any, builder: Any, signature: Any, values: Any) -> Any:
                found = emit(builder, *kind, *values[len(kind) :])
                return context.get_dummy_value() if found is None else found

            return signature(result, *given[: len(kind)], *parameters), lower

        places = [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in ("context", *names)]
        typing.__signature__ = inspect.Signature(places)  # type: ignore[attr-defined]
        typing.__name__ = emit.__name__
        typing.__doc__ = emit.__doc__
        return extending.intrinsic(prefer_literal=literal)(typing)

    return decorate


def call(b: Any, name: str, result: Any, *values: Any) -> Any:
    """Call one of LLVM's intrinsics by its full name."""
    found = b.module.globals.get(name)
    if found is None:
        found = ir.Function(b.module, ir.FunctionType(result, [v.type for v in values]), name)
    return b.call(found, values)


def pointer(b: Any, address: Any, kind: Any) -> Any:
    """Return the pointer of an address."""
    return b.inttoptr(address, kind.as_pointer())


def element(b: Any, address: Any, index: Any, kind: Any, size: int) -> Any:
    """Return the pointer of an array's element."""
    return pointer(b, b.add(address, b.mul(index, i64(size))), kind)


@define(int64, int64, int64)
def int_at(b: Any, p: Any, i: Any) -> Any:
    return b.load(element(b, p, i, i64, 8), align=8)


@define(void, int64, int64, int64)
def set_int(b: Any, p: Any, i: Any, value: Any) -> None:
    b.store(value, element(b, p, i, i64, 8), align=8)


@define(int64, int64, int64)
def int32_at(b: Any, p: Any, i: Any) -> Any:
    return b.sext(b.load(element(b, p, i, i32, 4), align=4), i64)


@define(float32, int64, int64)
def float_at(b: Any, p: Any, i: Any) -> Any:
    return b.load(element(b, p, i, f32, 4), align=4)


@define(void, int64, int64, float32)
def set_float(b: Any, p: Any, i: Any, value: Any) -> None:
    b.store(value, element(b, p, i, f32, 4), align=4)


@define(int64, int64, int64, int64)
def fetch_add(b: Any, p: Any, i: Any, n: Any) -> Any:
    """Add n to an integer that threads share and return what it was."""
    return b.atomic_rmw("add", element(b, p, i, i64, 8), n, "seq_cst")


@define(int64, int64, int64)
def int_now(b: Any, p: Any, i: Any) -> Any:
    """Return an integer that threads share."""
    return b.load_atomic(element(b, p, i, i64, 8), "seq_cst", 8)


@define(void, int64)
def prefetch(b: Any, p: Any) -> None:
    """Ask for the line of an address, into the second-level cache."""
    call(b, "llvm.prefetch.p0", ir.VoidType(), pointer(b, p, i8), i32(0), i32(2), i32(1))


def _by_address(*parameters: Any) -> Any:
    kinds = [{int64: i64, float32: f32}[p] for p in parameters]

    def emit(b: Any, address: Any, *values: Any) -> None:
        function = ir.FunctionType(ir.VoidType(), kinds)
        b.call(b.inttoptr(address, function.as_pointer()), values)

    names = [inspect.Parameter(f"p{i}", inspect.Parameter.POSITIONAL_OR_KEYWORD) for i in range(len(parameters) + 2)]
    emit.__signature__ = inspect.Signature(names)  # type: ignore[attr-defined]
    return define(void, int64, *parameters)(emit)


call_matmul = _by_address(*[int64] * 8)
call_rows = _by_address(*[int64] * 8)
call_dequantize = _by_address(*[int64] * 4)
call_attend = _by_address(*[int64] * 7, float32, float32)
call_store = _by_address(*[int64] * 5)

give_way: Any = types.ExternalFunction("SwitchToThread" if sys.platform == "win32" else "sched_yield", signature(int32))
"""Let another thread have the processor."""
