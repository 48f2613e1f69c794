"""Attention over pages of keys and values, in the order of csrc/kernels/attention.c.

Keys lie transposed in their page, ``[page][n_head_kv][head_dim][16]``, so that one vector holds one dimension of
16 tokens; values are ``[page][n_head_kv][16][head_dim_v]``.  Each query and head on its own: scores in four running
sums over dimensions d%4, spans of 256 consecutive positions with their own softmax, merged in ascending order.

A layer is described by integers ``keys, values, n_head_kv, head_dim, head_dim_v, window``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgellm.backends.jit.compiling import inner
from edgellm.backends.jit.formats import f_load_as, f_load_n_as, f_store_as, store_as
from edgellm.backends.jit.intrinsics import float_at, int32_at, int_at
from edgellm.backends.jit.lib import float32
from edgellm.backends.jit.rows import f_exp, f_tanh
from edgellm.backends.jit.vectors import (
    f_add,
    f_div,
    f_first,
    f_fma,
    f_keep,
    f_largest,
    f_load,
    f_max,
    f_mul,
    f_set,
    f_splat_at,
    f_store,
    f_store_n,
    f_sub,
    f_sum,
    f_zero,
)

PAGE, SPAN = 16, 256
INFINITY = float("inf")


def scratch_bytes(head_dim_v: int) -> int:
    """Return the scratch memory of one query: weights of a span, its weighted values, and those of all spans."""
    return 4 * (SPAN + 2 * _up(head_dim_v))


def _up(n: int) -> int:
    return (n + 15) // 16 * 16


@inner
def first_visible(position: int, window: int) -> int:
    """Return the first position that a query sees."""
    return position - window + 1 if window > 0 and position >= window else 0


@inner
def _squash(x: Any, cap: float) -> Any:
    c = f_set(cap)
    return f_mul(c, f_tanh(f_div(x, c)))


@inner
def _weigh(p: int, largest: float, page0: int, page1: int) -> Any:
    """Turn a span's scores into weights and return their sum."""
    total = f_zero()
    for g in range(page0, page1):
        e = f_exp(f_sub(f_load(p + 64 * g), f_set(largest)))
        total = f_add(total, e)
        f_store(p + 64 * g, e)
    return f_sum(total)


@inner
def _merge(acc: int, other: int, n: int, old: float, new: float) -> None:
    for d in range(0, n, 16):
        y = f_add(f_mul(f_load(acc + 4 * d), f_set(old)), f_mul(f_load(other + 4 * d), f_set(new)))
        f_store(acc + 4 * d, y)


def attend(kind: int) -> Callable[..., None]:
    """Return the attention of one query at `position`, with keys and values of type F32 (0) or F16 (1)."""
    size = 4 if kind == 0 else 2

    def attention(
        kv: int, q: int, position: int, head: int, pages: int, out: int, scratch: int, scale: float, cap: float
    ) -> None:
        keys, values, heads, dim, dim_v = int_at(kv, 0), int_at(kv, 1), int_at(kv, 2), int_at(kv, 3), int_at(kv, 4)
        first = first_visible(position, int_at(kv, 5))
        p, now = scratch, scratch + 4 * SPAN
        acc = now + (dim_v + 15) // 16 * 64
        row, whole = size * PAGE, dim // 4 * 4
        best, total = float32(0.0), float32(-1.0)
        for span in range(first // SPAN, position // SPAN + 1):
            begin = span * SPAN
            a, b = max(first - begin, 0), min(position + 1 - begin, SPAN)
            page0, page1, table = a // PAGE, (b + PAGE - 1) // PAGE, begin // PAGE
            most = f_set(-INFINITY)
            for g in range(page0, page1):
                at = keys + row * dim * (int32_at(pages, table + g) * heads + head)
                s0, s1, s2, s3 = f_zero(), f_zero(), f_zero(), f_zero()
                for d in range(0, whole, 4):
                    s0 = f_fma(f_splat_at(q + 4 * d), f_load_as(kind, at + row * d), s0)
                    s1 = f_fma(f_splat_at(q + 4 * d + 4), f_load_as(kind, at + row * d + row), s1)
                    s2 = f_fma(f_splat_at(q + 4 * d + 8), f_load_as(kind, at + row * d + 2 * row), s2)
                    s3 = f_fma(f_splat_at(q + 4 * d + 12), f_load_as(kind, at + row * d + 3 * row), s3)
                if whole < dim:
                    s0 = f_fma(f_splat_at(q + 4 * whole), f_load_as(kind, at + row * whole), s0)
                if whole + 1 < dim:
                    s1 = f_fma(f_splat_at(q + 4 * whole + 4), f_load_as(kind, at + row * whole + row), s1)
                if whole + 2 < dim:
                    s2 = f_fma(f_splat_at(q + 4 * whole + 8), f_load_as(kind, at + row * whole + 2 * row), s2)
                x = f_mul(f_add(f_add(s0, s1), f_add(s2, s3)), f_set(scale))
                if cap > float32(0.0):
                    x = _squash(x, cap)
                # Slots that the query may not see hold anything.
                x = f_keep(x, a - g * PAGE, b - g * PAGE, -INFINITY)
                most = f_max(most, x)
                f_store(p + 64 * g, x)
            largest = f_largest(most)
            weight = _weigh(p, largest, page0, page1)
            for d in range(0, dim_v, 16):
                left = min(dim_v - d, 16)
                y = f_zero()
                for g in range(page0, page1):
                    at = values + size * (dim_v * PAGE * (int32_at(pages, table + g) * heads + head) + d)
                    if left == 16:
                        for t in range(max(a, g * PAGE), min(b, g * PAGE + PAGE)):
                            v = f_load_as(kind, at + size * dim_v * (t - g * PAGE))
                            y = f_fma(f_splat_at(p + 4 * t), v, y)
                    else:
                        for t in range(max(a, g * PAGE), min(b, g * PAGE + PAGE)):
                            v = f_load_n_as(kind, at + size * dim_v * (t - g * PAGE), left)
                            y = f_fma(f_splat_at(p + 4 * t), v, y)
                f_store((acc if total < float32(0.0) else now) + 4 * d, y)
            if total < float32(0.0):
                best, total = largest, weight
            else:
                higher = best if best > largest else largest
                old = f_first(f_exp(f_set(best - higher)))
                new = f_first(f_exp(f_set(largest - higher)))
                best, total = higher, total * old + weight * new
                _merge(acc, now, dim_v, old, new)
        inverse = f_set(float32(1.0) / total)
        for d in range(0, dim_v, 16):
            f_store_n(out + 4 * d, f_mul(f_load(acc + 4 * d), inverse), min(dim_v - d, 16))

    return attention


def store(kind: int) -> Callable[..., None]:
    """Return what stores the keys and values of one row, all heads, at `slot` of a page."""
    size = 4 if kind == 0 else 2

    def store_row(kv: int, k: int, v: int, page: int, slot: int) -> None:
        keys, values, heads, dim, dim_v = int_at(kv, 0), int_at(kv, 1), int_at(kv, 2), int_at(kv, 3), int_at(kv, 4)
        for h in range(heads):
            block = (page * heads + h) * PAGE
            for d in range(dim):
                store_as(kind, keys + size * (block * dim + d * PAGE + slot), float_at(k, h * dim + d))
            for d in range(dim_v):
                store_as(kind, values + size * ((block + slot) * dim_v + d), float_at(v, h * dim_v + d))

    return store_row


def rotate(kind: int) -> Callable[..., None]:
    """Return what turns all keys of one page by the same angles: cosine and sine of each pair, interleaved."""
    size = 4 if kind == 0 else 2

    def rotate_page(kv: int, page: int, angles: int, n_rot: int, neox: int) -> None:
        keys, heads, dim = int_at(kv, 0), int_at(kv, 2), int_at(kv, 3)
        half, row = n_rot // 2, size * PAGE
        step, apart = (1, half) if neox else (2, 1)
        for h in range(heads):
            at = keys + row * dim * (page * heads + h)
            for i in range(half):
                x, y = at + row * step * i, at + row * (step * i + apart)
                c, s = f_splat_at(angles + 8 * i), f_splat_at(angles + 8 * i + 4)
                a, b = f_load_as(kind, x), f_load_as(kind, y)
                f_store_as(kind, x, f_sub(f_mul(a, c), f_mul(b, s)))
                f_store_as(kind, y, f_add(f_mul(a, s), f_mul(b, c)))

    return rotate_page
