"""Matrix products and rows of a matrix, one kernel for each tensor type.

The order of every output element is that of csrc/kernels/matmul_quant.h: blocks of 32 ascending, integers exact
within half a block, then float32.  A tile of 16 output rows is unpacked block by block and stays in registers
while it meets the inputs of all rows of the step.

A matrix is described by integers ``data, row_bytes, n_in, n_out, scale, bias``: addresses, or 0 where there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgellm.backends.jit.blocks import BLOCKS
from edgellm.backends.jit.compiling import inner
from edgellm.backends.jit.formats import FLOATS, f_load_as, f_load_n_as
from edgellm.backends.jit.intrinsics import int_at, prefetch, set_int
from edgellm.backends.jit.tiles import row_values, scales, tile, tile_dot_high, tile_dot_low
from edgellm.backends.jit.vectors import (
    f_add,
    f_fma,
    f_join,
    f_load,
    f_load_n,
    f_mul,
    f_splat_at,
    f_store,
    f_store_n,
    f_sum,
    f_zero,
)

ACT_BYTES = 96
"""A block of 32 inputs: int16 values, then the scale and the sum of each half, the sum of both, and padding."""
D0, D1, SUM0, SUM1, SUM = 16, 17, 18, 19, 20
"""Where these floats are, in floats."""

WS, WM, ROWS, ACC = 0, 1024, 2048, 2176
"""Scratch: scales and mins of 8 blocks, addresses of 16 weight rows, and a vector of sums for each input row."""

LINE_BYTES = 64


def scratch_bytes(max_rows: int) -> int:
    """Return the scratch memory that a matrix product needs."""
    return ACC + 64 * max_rows


@inner
def _finish(w: int, acc: Any, n: int, out: int) -> None:
    """Write the outputs from number n of a tile: scaled, and with their bias."""
    n_out, scale, bias = int_at(w, 3), int_at(w, 4), int_at(w, 5)
    if scale != 0:
        acc = f_mul(acc, f_splat_at(scale))
    left = n_out - n
    if left >= 16:
        if bias != 0:
            acc = f_add(acc, f_load(bias + 4 * n))
        f_store(out + 4 * n, acc)
    else:
        if bias != 0:
            acc = f_add(acc, f_load_n(bias + 4 * n, left))
        f_store_n(out + 4 * n, acc, left)


@inner
def _point(w: int, number: int, table: int) -> None:
    """Write the addresses of a tile's rows; those that are not there count as the last."""
    data, row_bytes, n_out = int_at(w, 0), int_at(w, 1), int_at(w, 3)
    for r in range(16):
        set_int(table, r, data + row_bytes * min(16 * number + r, n_out - 1))


def block_matmul(kind: int) -> Callable[..., None]:
    """Return the product of a block type with quantized inputs."""
    unit, sub, mins = BLOCKS[kind].unit, BLOCKS[kind].sub, BLOCKS[kind].mins

    def matmul(w: int, x: int, act: int, rows: int, out: int, tile0: int, tile1: int, scratch: int) -> None:
        row_bytes, n_block, n_out = int_at(w, 1), int_at(w, 2) // 32, int_at(w, 3)
        ws, wm, table, acc = scratch + WS, scratch + WM, scratch + ROWS, scratch + ACC
        for number in range(tile0, tile1):
            _point(w, number, table)
            # Lines of the tile after the next one, in memory's order: columns of rows confuse the hardware.
            ahead = int_at(table, 0) + 32 * row_bytes
            share = 16 * row_bytes // n_block if 16 * (number + 3) <= n_out else 0
            for a in range(rows):
                f_store(acc + 64 * a, f_zero())
            for u in range(n_block // unit):
                scales(kind, table, u, ws, wm)
                for i in range(unit):
                    block = u * unit + i
                    for line in range(0, share, LINE_BYTES):
                        prefetch(ahead + line)
                    ahead += share
                    t = tile(kind, table, block)
                    q = act + ACT_BYTES * block * rows
                    for a in range(rows):
                        y = f_load(acc + 64 * a)
                        low, high = tile_dot_low(t, q), tile_dot_high(t, q)
                        d0, d1 = f_splat_at(q + 4 * D0), f_splat_at(q + 4 * D1)
                        if sub == 1:
                            y = f_fma(f_fma(high, d1, f_mul(low, d0)), f_load(ws + 64 * i), y)
                            if mins:
                                y = f_fma(f_load(wm + 64 * i), f_splat_at(q + 4 * SUM), y)
                        else:
                            y = f_fma(f_mul(low, f_load(ws + 128 * i)), d0, y)
                            y = f_fma(f_mul(high, f_load(ws + 128 * i + 64)), d1, y)
                            if mins:
                                y = f_fma(f_load(wm + 128 * i), f_splat_at(q + 4 * SUM0), y)
                                y = f_fma(f_load(wm + 128 * i + 64), f_splat_at(q + 4 * SUM1), y)
                        f_store(acc + 64 * a, y)
                        q += ACT_BYTES
            for a in range(rows):
                _finish(w, f_load(acc + 64 * a), 16 * number, out + 4 * n_out * a)

    return matmul


def block_row(kind: int) -> Callable[..., None]:
    """Return what writes one row of a block type as floats."""
    unit, sub, mins = BLOCKS[kind].unit, BLOCKS[kind].sub, BLOCKS[kind].mins

    def dequantize(row: int, out: int, n: int, scratch: int) -> None:
        ws, wm, table = scratch + WS, scratch + WM, scratch + ROWS
        for r in range(16):
            set_int(table, r, row)
        for u in range(n // 32 // unit):
            scales(kind, table, u, ws, wm)
            for i in range(unit):
                block = u * unit + i
                for half in range(2):
                    at = 64 * (sub * i + half * (sub - 1))
                    y = f_mul(f_splat_at(ws + at), row_values(kind, row, block, half))
                    if mins:
                        y = f_add(y, f_splat_at(wm + at))
                    f_store(out + 4 * (32 * block + 16 * half), y)

    return dequantize


def float_matmul(kind: int) -> Callable[..., None]:
    """Return the product of a float type with float inputs: 16 lanes over the inputs, then the summing tree."""
    size = FLOATS[kind]

    def matmul(w: int, x: int, act: int, rows: int, out: int, tile0: int, tile1: int, scratch: int) -> None:
        data, row_bytes, n_in, n_out = int_at(w, 0), int_at(w, 1), int_at(w, 2), int_at(w, 3)
        scale, bias = int_at(w, 4), int_at(w, 5)
        end, whole = min(16 * tile1, n_out), n_in // 16 * 16
        for n in range(16 * tile0, end, 4):  # Four at once hide the time that a sum takes; too many count as the last.
            w0 = data + row_bytes * n
            w1 = data + row_bytes * min(n + 1, n_out - 1)
            w2 = data + row_bytes * min(n + 2, n_out - 1)
            w3 = data + row_bytes * min(n + 3, n_out - 1)
            for a in range(rows):
                v = x + 4 * n_in * a
                y0, y1, y2, y3 = f_zero(), f_zero(), f_zero(), f_zero()
                for k in range(0, whole, 16):
                    u = f_load(v + 4 * k)
                    y0 = f_fma(f_load_as(kind, w0 + size * k), u, y0)
                    y1 = f_fma(f_load_as(kind, w1 + size * k), u, y1)
                    y2 = f_fma(f_load_as(kind, w2 + size * k), u, y2)
                    y3 = f_fma(f_load_as(kind, w3 + size * k), u, y3)
                left = n_in - whole
                if left > 0:
                    u = f_load_n(v + 4 * whole, left)
                    y0 = f_fma(f_load_n_as(kind, w0 + size * whole, left), u, y0)
                    y1 = f_fma(f_load_n_as(kind, w1 + size * whole, left), u, y1)
                    y2 = f_fma(f_load_n_as(kind, w2 + size * whole, left), u, y2)
                    y3 = f_fma(f_load_n_as(kind, w3 + size * whole, left), u, y3)
                y = f_join(f_sum(y0), f_sum(y1), f_sum(y2), f_sum(y3))
                count = min(4, end - n)
                if scale != 0:
                    y = f_mul(y, f_splat_at(scale))
                if bias != 0:
                    y = f_add(y, f_load_n(bias + 4 * n, count))
                f_store_n(out + 4 * (n_out * a + n), y, count)

    return matmul


def float_row(kind: int) -> Callable[..., None]:
    """Return what writes one row of a float type as floats."""
    size = FLOATS[kind]

    def dequantize(row: int, out: int, n: int, scratch: int) -> None:
        for k in range(0, n, 16):
            left = min(n - k, 16)
            f_store_n(out + 4 * k, f_load_n_as(kind, row + size * k, left), left)

    return dequantize
