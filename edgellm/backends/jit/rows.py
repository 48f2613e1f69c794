"""Ops that see one row at a time: quantization, norms, rope and elementwise ones; as csrc/kernels/rows.c."""

from __future__ import annotations

from typing import Any

from edgellm.backends.jit.compiling import inner
from edgellm.backends.jit.intrinsics import float_at, set_float
from edgellm.backends.jit.lib import float32
from edgellm.backends.jit.matmul import D0, SUM, SUM0
from edgellm.backends.jit.vectors import (
    MAGIC,
    f_abs,
    f_add,
    f_copysign,
    f_div,
    f_fma,
    f_if_less,
    f_largest,
    f_load,
    f_load_n,
    f_max,
    f_min,
    f_mul,
    f_power_of_two,
    f_set,
    f_store_n,
    f_sub,
    f_sum,
    f_zero,
    root,
    store_rounded,
)

ADD, SCALE, GLU, SOFTCAP = 6, 7, 8, 9
"""The kinds of elementwise ops in a lowered program."""


@inner
def f_exp(x: Any) -> Any:
    """e^x, about one unit in the last place; below -87.3 exactly 0, from 127.5 ln 2 = 88.4 on infinite."""
    low = f_set(-87.3)
    y = f_max(low, f_min(f_set(88.7), x))  # x last: NaN stays NaN.
    magic = f_set(MAGIC)
    rounded = f_add(f_mul(y, f_set(1.44269504)), magic)
    n = f_sub(rounded, magic)
    r = f_fma(n, f_set(-0.693359375), y)
    r = f_fma(n, f_set(2.12194440e-4), r)
    p = f_set(1.0 / 5040.0)
    p = f_fma(p, r, f_set(1.0 / 720.0))
    p = f_fma(p, r, f_set(1.0 / 120.0))
    p = f_fma(p, r, f_set(1.0 / 24.0))
    p = f_fma(p, r, f_set(1.0 / 6.0))
    p = f_fma(p, r, f_set(0.5))
    p = f_fma(p, r, f_set(1.0))
    p = f_fma(p, r, f_set(1.0))
    return f_if_less(x, low, f_zero(), f_mul(p, f_power_of_two(rounded)))


@inner
def f_tanh(x: Any) -> Any:
    """Return tanh x: the series near zero, where the quotient would cancel."""
    a = f_min(f_set(20.0), f_abs(x))
    s = f_mul(x, x)
    p = f_set(-1382.0 / 155925.0)
    p = f_fma(p, s, f_set(62.0 / 2835.0))
    p = f_fma(p, s, f_set(-17.0 / 315.0))
    p = f_fma(p, s, f_set(2.0 / 15.0))
    p = f_fma(p, s, f_set(-1.0 / 3.0))
    small = f_fma(f_mul(p, s), x, x)
    one = f_set(1.0)
    big = f_sub(one, f_div(f_set(2.0), f_add(f_exp(f_add(a, a)), one)))
    return f_if_less(a, f_set(0.35), small, f_copysign(big, x))


@inner
def quantize(x: int, block: int) -> None:
    """Quantize 32 values to a block of inputs: every 16 share a scale of max|x| / 127."""
    total = float32(0.0)
    for half in range(2):
        v = f_load(x + 64 * half)
        most = f_largest(f_abs(v))
        # A NaN or an infinity makes the scale NaN: it must not vanish in the rounding.
        poison = f_sum(f_mul(v, f_zero()))
        d = most / float32(127.0)
        inverse = float32(127.0) / most if most > float32(0.0) else float32(0.0)
        if not inverse <= float32(3.4e38):  # The inverse of a subnormal may overflow: such values are zero.
            inverse, d = float32(0.0), float32(0.0)
        d += poison
        part = d * store_rounded(f_mul(v, f_set(inverse)), block + 32 * half)
        set_float(block, D0 + half, d)
        set_float(block, SUM0 + half, part)
        total = part if half == 0 else total + part
    set_float(block, SUM, total)


@inner
def rms_norm(x: int, weight: int, out: int, n: int, size: int, eps: float) -> None:
    """Normalise runs of `size` values; the squares are summed in 16 lanes and the summing tree."""
    for at in range(0, 4 * n, 4 * size):
        total = f_zero()
        for i in range(0, size, 16):
            v = f_load_n(x + at + 4 * i, size - i) if size - i < 16 else f_load(x + at + 4 * i)
            total = f_fma(v, v, total)
        r = f_set(float32(1.0) / root(f_sum(total) / float32(size) + eps))
        for i in range(0, size, 16):
            left = min(size - i, 16)
            y = f_mul(f_load_n(x + at + 4 * i, left), r)
            if weight != 0:
                y = f_mul(y, f_load_n(weight + 4 * i, left))
            f_store_n(out + at + 4 * i, y, left)


@inner
def rope(x: int, angles: int, out: int, n_head: int, head_dim: int, n_rot: int, neox: int) -> None:
    """Turn heads; angles are cosine and sine of each pair, interleaved.  `out` may be `x`."""
    half = n_rot // 2
    step, apart = (1, half) if neox else (2, 1)
    for _ in range(n_head):
        for i in range(half):
            c, s = float_at(angles, 2 * i), float_at(angles, 2 * i + 1)
            a, b = float_at(x, step * i), float_at(x, step * i + apart)
            set_float(out, step * i, a * c - b * s)
            set_float(out, step * i + apart, a * s + b * c)
        if out != x:
            copy(x + 4 * n_rot, out + 4 * n_rot, head_dim - n_rot)
        x += 4 * head_dim
        out += 4 * head_dim


@inner
def copy(x: int, out: int, n: int) -> None:
    """Copy n floats."""
    for i in range(0, n, 16):
        left = min(n - i, 16)
        f_store_n(out + 4 * i, f_load_n(x + 4 * i, left), left)


@inner
def scale(x: int, out: int, n: int, factor: float) -> None:
    """Multiply n floats."""
    for i in range(0, n, 16):
        left = min(n - i, 16)
        f_store_n(out + 4 * i, f_mul(f_load_n(x + 4 * i, left), f_set(factor)), left)


@inner
def _silu(x: Any) -> Any:
    return f_div(x, f_add(f_set(1.0), f_exp(f_sub(f_zero(), x))))


@inner
def _gelu(x: Any) -> Any:
    inside = f_fma(f_mul(x, x), f_set(0.044715), f_set(1.0))
    inside = f_mul(f_mul(x, f_set(0.79788456080286535587989211986876)), inside)
    return f_mul(f_mul(x, f_set(0.5)), f_add(f_set(1.0), f_tanh(inside)))


@inner
def elementwise(kind: int, a: int, b: int, out: int, n: int, f0: float, gelu: int) -> None:
    """Run an elementwise op over n floats."""
    for i in range(0, n, 16):
        left = min(n - i, 16)
        x = f_load_n(a + 4 * i, left)
        if kind == ADD:
            y = f_add(x, f_load_n(b + 4 * i, left))
        elif kind == GLU:
            y = f_mul(_gelu(x) if gelu else _silu(x), f_load_n(b + 4 * i, left))
        elif kind == SCALE:
            y = f_mul(x, f_set(f0))
        else:
            y = f_mul(f_set(f0), f_tanh(f_div(x, f_set(f0))))
        f_store_n(out + 4 * i, y, left)
