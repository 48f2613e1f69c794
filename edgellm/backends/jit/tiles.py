"""Blocks of 16 rows at a time, as kernels use them: scales, a tile of weights, and its products with inputs."""

from __future__ import annotations

from typing import Any

from edgellm.backends.jit.blocks import BLOCKS, BYTES16, PAIRS, row_of
from edgellm.backends.jit.intrinsics import call, define, pointer
from edgellm.backends.jit.lib import i32, i64, int64, ir, void
from edgellm.backends.jit.vectors import LANES, F, H, T, V, constant, has, shuffle, splat


@define(void, int64, int64, int64, int64, literal=True)
def scales(b: Any, kind: int, rows: Any, unit: Any, ws: Any, wm: Any) -> None:
    """Store the scales of one unit of 16 rows, and mins where the type has them."""
    for i, (scale, low) in enumerate(BLOCKS[kind].scales(b, rows, unit)):
        b.store(scale, pointer(b, b.add(ws, i64(64 * i)), V["f32"]), align=4)
        if low is not None:
            b.store(low, pointer(b, b.add(wm, i64(64 * i)), V["f32"]), align=4)


def _widened(b: Any, kind: int, x: Any) -> Any:
    """Return 32 stored bytes, 16 pairs of them in lanes of 16 bits, as int16 less the offset."""
    signed, offset = BLOCKS[kind].signed, BLOCKS[kind].offset
    if signed:
        x = b.xor(x, constant(PAIRS, 0x8080 - 0x10000))
    pairs, first, second = b.zext(x, V["i32"]), constant(V["i32"], 0x00FF), constant(V["i32"], 0xFF00)
    values = b.bitcast(b.or_(b.and_(pairs, first), b.shl(b.and_(pairs, second), constant(V["i32"], 8))), H)
    return b.sub(values, constant(H, 128 if signed else offset)) if signed or offset else values


def _columns(b: Any, x: list[Any]) -> list[Any]:
    """Turn 16 or 8 vectors of 16 lanes around by four perfect shuffles: of rows of 16 lanes, or pairs of rows of 8."""
    n = len(x)
    for _ in range(4):
        x = [
            shuffle(b, x[r // 2], x[r // 2 + n // 2], [i // 2 + 8 * (r % 2) + 16 * (i % 2) for i in range(LANES)])
            for r in range(n)
        ]
    return x


@define(T, int64, int64, literal=True)
def tile(b: Any, kind: int, rows: Any, block: Any) -> Any:
    """Unpack one block of 16 rows."""
    stored = [BLOCKS[kind].load(b, row_of(b, rows, r), block) for r in range(LANES)]
    if BLOCKS[kind].packed:
        both = [b.bitcast(shuffle(b, stored[r], stored[r + 1], range(32)), PAIRS) for r in range(0, LANES, 2)]
        columns = _columns(b, both)
        low, fours = constant(PAIRS, 0x0F0F), constant(PAIRS, 4)
        columns = [b.and_(x, low) for x in columns] + [b.and_(b.lshr(x, fours), low) for x in columns]
    else:
        columns = _columns(b, [b.bitcast(x, PAIRS) for x in stored])
    found = ir.Constant(T.llvm, ir.Undefined)
    for j in range(LANES):
        found = b.insert_value(found, _widened(b, kind, columns[j]), j)
    return found


def _products(b: Any, x: Any, y: Any) -> Any:
    """Multiply 32 int16 with 32 others and add neighbours: int32."""
    for feature, lanes, name in (("avx512bw", 32, "avx512.pmaddw.d.512"), ("avx2", 16, "avx2.pmadd.wd")):
        if has(feature):  # LLVM does not always see that this is what is meant.
            kind = ir.VectorType(i32, lanes // 2)
            parts = []
            for at in range(0, 32, lanes):
                u, v = (z if lanes == 32 else shuffle(b, z, z, range(at, at + lanes)) for z in (x, y))
                parts.append(call(b, f"llvm.x86.{name}", kind, u, v))
            return parts[0] if lanes == 32 else shuffle(b, parts[0], parts[1], range(LANES))
    wide = ir.VectorType(i32, 32)
    products = b.mul(b.sext(x, wide), b.sext(y, wide))
    return b.add(*(shuffle(b, products, products, range(i, 32, 2)) for i in (0, 1)))


def _dot(b: Any, t: Any, x: Any, half: int) -> Any:
    """Sum the integer products of one half of a tile with 16 int16 inputs."""
    total = constant(V["i32"], 0)
    for j in range(8 * half, 8 * half + 8):
        pair = b.load(pointer(b, b.add(x, i64(4 * j)), i32), align=4)
        total = b.add(total, _products(b, b.extract_value(t, j), b.bitcast(splat(b, pair), H)))
    return b.sitofp(total, V["f32"])


@define(F, T, int64)
def tile_dot_low(b: Any, t: Any, x: Any) -> Any:
    """Return the products of the tile's first 16 weights of each row with 16 int16 inputs, as floats."""
    return _dot(b, t, x, 0)


@define(F, T, int64)
def tile_dot_high(b: Any, t: Any, x: Any) -> Any:
    """Return the same for the other 16 weights; `x` is the address of all 32 inputs."""
    return _dot(b, t, x, 1)


@define(F, int64, int64, int64, literal=True)
def row_values(b: Any, kind: int, row: Any, block: Any, half: Any) -> Any:
    """Return 16 stored values of one row, less the offset, as floats."""
    u = BLOCKS[kind].load(b, row, block)
    if BLOCKS[kind].packed:
        u = shuffle(b, b.and_(u, constant(BYTES16, 15)), b.lshr(u, constant(BYTES16, 4)), range(32))
    wide = _widened(b, kind, b.bitcast(u, PAIRS))
    low, high = (shuffle(b, wide, wide, range(at, at + LANES)) for at in (0, LANES))
    chosen = b.select(b.icmp_signed("==", half, i64(0)), low, high)
    return b.sitofp(chosen, V["f32"])
