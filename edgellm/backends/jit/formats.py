"""The float types of files and of keys and values, read as floats."""

from __future__ import annotations

import platform
from typing import Any

from edgellm.backends.jit.intrinsics import define, pointer
from edgellm.backends.jit.lib import f32, float32, i16, i32, int64, ir, void
from edgellm.backends.jit.vectors import LANES, F, V, constant, has, load_first

FLOATS = {0: 4, 1: 2, 30: 2}
"""Float types by ggml's number (F32, F16, BF16), and their bytes."""


def half_to_float(b: Any, h: Any) -> Any:
    """Return 16 half-precision numbers, given as int16, as floats."""
    if has("f16c") or platform.machine().lower() in ("aarch64", "arm64"):
        return b.fpext(b.bitcast(h, ir.VectorType(ir.HalfType(), LANES)), V["f32"])
    k = V["i32"]
    u = b.zext(h, k)
    sign = b.shl(b.and_(u, constant(k, 0x8000)), constant(k, 16))
    body = b.and_(u, constant(k, 0x7FFF))
    normal = b.add(b.shl(body, constant(k, 13)), constant(k, 112 << 23))
    special = b.or_(b.shl(body, constant(k, 13)), constant(k, 0x7F800000))
    small = b.bitcast(b.fmul(b.uitofp(body, V["f32"]), constant(V["f32"], 2.0**-24)), k)
    found = b.select(b.icmp_unsigned("<", body, constant(k, 0x400)), small, normal)
    found = b.select(b.icmp_unsigned(">=", body, constant(k, 0x7C00)), special, found)
    return b.bitcast(b.or_(found, sign), V["f32"])


def float_to_half(b: Any, x: Any) -> Any:
    """Return floats, or one, as half-precision numbers, to nearest; int32."""
    wide, many = (V["f32"], V["i32"]) if x.type == V["f32"] else (f32, i32)

    def k(value: int) -> Any:
        return constant(many, value)

    u = b.bitcast(x, many)
    sign = b.and_(b.lshr(u, k(16)), k(0x8000))
    u = b.and_(u, k(0x7FFFFFFF))
    even = b.and_(b.lshr(u, k(13)), k(1))
    normal = b.lshr(b.sub(b.add(b.add(u, k(0xFFF)), even), k(0x38000000)), k(13))
    # The adder rounds what is subnormal as a half.
    small = b.sub(b.bitcast(b.fadd(b.bitcast(u, wide), constant(wide, 0.5)), many), k(0x3F000000))
    nan = b.or_(b.and_(b.lshr(u, k(13)), k(0x3FF)), k(0x7E00))
    found = b.select(b.icmp_unsigned("<", u, k(0x38800000)), small, normal)
    found = b.select(b.icmp_unsigned(">=", u, k(0x477FF000)), k(0x7C00), found)
    found = b.select(b.icmp_unsigned(">", u, k(0x7F800000)), nan, found)
    return b.or_(found, sign)


def _as_floats(b: Any, kind: int, x: Any) -> Any:
    if kind == 0:
        return x
    if kind == 1:
        return half_to_float(b, x)
    return b.bitcast(b.shl(b.zext(x, V["i32"]), constant(V["i32"], 16)), V["f32"])


@define(F, int64, literal=True)
def f_load_as(b: Any, kind: int, p: Any) -> Any:
    """Load 16 numbers of a float type."""
    stored = V["f32"] if kind == 0 else V["i16"]
    return _as_floats(b, kind, b.load(pointer(b, p, stored), align=2))


@define(F, int64, int64, literal=True)
def f_load_n_as(b: Any, kind: int, p: Any, n: Any) -> Any:
    """Load the first n of 16 numbers of a float type; the others are zero."""
    return _as_floats(b, kind, load_first(b, p, V["f32"] if kind == 0 else V["i16"], n))


@define(void, int64, float32, literal=True)
def store_as(b: Any, kind: int, p: Any, x: Any) -> None:
    """Store a number as F32 or F16."""
    if kind == 0:
        b.store(x, pointer(b, p, f32), align=4)
    else:
        b.store(b.trunc(float_to_half(b, x), i16), pointer(b, p, i16), align=2)


@define(void, int64, F, literal=True)
def f_store_as(b: Any, kind: int, p: Any, x: Any) -> None:
    """Store 16 numbers as F32 or F16."""
    if kind == 0:
        b.store(x, pointer(b, p, V["f32"]), align=4)
    else:
        b.store(b.trunc(float_to_half(b, x), V["i16"]), pointer(b, p, V["i16"]), align=2)
