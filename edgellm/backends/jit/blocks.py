"""What each block type looks like in the file, as code that reads 16 rows at a time.

The counterpart of csrc/kernels/quants.h.  A type gives the 32 stored bytes u of a block of one row, and the
scales of the same block of 16 rows, a row a lane:  ``weight = ws * (u - offset) + wm``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from edgellm.backends.jit.formats import half_to_float
from edgellm.backends.jit.intrinsics import pointer
from edgellm.backends.jit.lib import i1, i8, i16, i32, i64, ir
from edgellm.backends.jit.vectors import LANES, V, constant, shuffle, splat

BYTES16, BYTES32, PAIRS = ir.VectorType(i8, 16), ir.VectorType(i8, 32), V["i16"]
Scales = Iterator[tuple[Any, Any]]


@dataclass(frozen=True)
class Block:
    """One type.  `load` and `scales` write code; addresses and block numbers are LLVM values."""

    load: Callable[[Any, Any, Any], Any]
    """The 32 bytes of one block, from (builder, row, block number)."""
    scales: Callable[[Any, Any, Any], Scales]
    """(ws, wm or None) of each run of 32 / sub weights of a unit, from (builder, 16 rows, unit number)."""
    unit: int = 1
    """Blocks of 32 that share their scale bytes."""
    sub: int = 1
    """Scales of one block of 32."""
    mins: bool = False
    offset: int = 0
    signed: bool = False
    packed: bool = False
    """`load` gives 16 bytes: the low halves are weights 0 to 15, the high ones 16 to 31."""


def _words(b: Any, rows: Any, at: Any) -> Any:
    """Gather the 32-bit words `at` bytes into each of 16 rows."""
    found = ir.Constant(V["i32"], ir.Undefined)
    for r in range(LANES):
        word = b.load(pointer(b, b.add(row_of(b, rows, r), at), i32), align=1)
        found = b.insert_element(found, word, i32(r))
    return found


def _halves(b: Any, rows: Any, at: Any) -> Any:
    """Gather half-precision numbers as floats."""
    found = ir.Constant(V["i16"], ir.Undefined)
    for r in range(LANES):
        half = b.load(pointer(b, b.add(row_of(b, rows, r), at), i16), align=1)
        found = b.insert_element(found, half, i32(r))
    return half_to_float(b, found)


def _pairs(b: Any, rows: Any, at: Any) -> tuple[Any, Any]:
    """Gather two half-precision numbers that lie beside each other."""
    words = _words(b, rows, at)
    high = b.lshr(words, constant(V["i32"], 16))
    return half_to_float(b, b.trunc(words, V["i16"])), half_to_float(b, b.trunc(high, V["i16"]))


def row_of(b: Any, rows: Any, r: int) -> Any:
    """Return the address of one of 16 rows."""
    return b.load(pointer(b, b.add(rows, i64(8 * r)), i64), align=8)


def _plus(b: Any, x: Any, n: int) -> Any:
    return b.add(x, i64(n))


def _load(b: Any, p: Any, kind: Any = BYTES32) -> Any:
    return b.load(pointer(b, p, kind), align=1)


def _shift_right(b: Any, x: Any, n: Any) -> Any:
    """Shift 16-bit units: bits come over from the neighbour byte and must be masked away."""
    units = ir.VectorType(i16, 16)
    return b.bitcast(b.lshr(b.bitcast(x, units), splat(b, b.trunc(n, i16))), BYTES32)


def _bits(b: Any, x: Any, shift: Any, mask: int, left: int = 0) -> Any:
    found = b.and_(_shift_right(b, x, shift), constant(BYTES32, mask))
    return b.shl(found, constant(BYTES32, left)) if left else found


def _nibbles(b: Any, p: Any) -> Any:
    """Sixteen bytes of nibbles: the low ones first, then the high ones."""
    x = _load(b, p, BYTES16)
    low, high = b.and_(x, constant(BYTES16, 15)), b.lshr(x, constant(BYTES16, 4))
    return shuffle(b, low, high, range(32))


def _flags(b: Any, p: Any) -> Any:
    """Bit i of a 32-bit word as 16 in byte i."""
    flags = b.bitcast(b.load(pointer(b, p, i32), align=1), ir.VectorType(i1, 32))
    return b.shl(b.zext(flags, BYTES32), constant(BYTES32, 4))


def _simple(size: int, skip: int, *, mins: bool = False, high_bits: int | None = None, offset: int = 0) -> Block:
    """A block of 32 with one half-precision scale, perhaps a min, perhaps fifth bits, and nibbles at `skip`."""

    def load(b: Any, row: Any, block: Any) -> Any:
        p = b.add(row, b.mul(block, i64(size)))
        if high_bits is None:
            return _load(b, _plus(b, p, skip), BYTES16)
        return b.or_(_nibbles(b, _plus(b, p, skip)), _flags(b, _plus(b, p, high_bits)))

    def scales(b: Any, rows: Any, unit: Any) -> Scales:
        at = b.mul(unit, i64(size))
        yield _pairs(b, rows, at) if mins else (_halves(b, rows, at), None)

    return Block(load, scales, mins=mins, offset=offset, packed=high_bits is None)


def _q8_0_load(b: Any, row: Any, block: Any) -> Any:
    return _load(b, _plus(b, b.add(row, b.mul(block, i64(34))), 2))


def _q8_0_scales(b: Any, rows: Any, unit: Any) -> Scales:
    yield _halves(b, rows, b.mul(unit, i64(34))), None


def _super(b: Any, row: Any, block: Any, size: int) -> Any:
    """The address of the super-block of 256 that holds a block."""
    return b.add(row, b.mul(b.lshr(block, i64(3)), i64(size)))


def _part(b: Any, block: Any, shift: int, mask: int, times: int) -> Any:
    return b.mul(b.and_(b.lshr(block, i64(shift)), i64(mask)), i64(times))


def _byte(b: Any, words: list[Any], i: int, shift: int = 0, mask: int = 255) -> Any:
    """Byte i of words that lie one after the other, as int32."""
    found = b.lshr(words[i // 4], constant(V["i32"], 8 * (i % 4) + shift))
    return b.and_(found, constant(V["i32"], mask))


def _times(b: Any, d: Any, q: Any) -> Any:
    return b.fmul(d, b.sitofp(q, V["f32"]))


def _negative(b: Any, x: Any) -> Any:
    return b.fsub(constant(V["f32"], 0.0), x)


def _q2_k_load(b: Any, row: Any, block: Any) -> Any:
    p = b.add(_super(b, row, block, 84), _part(b, block, 2, 1, 32))
    return _bits(b, _load(b, _plus(b, p, 16)), _part(b, block, 0, 3, 2), 3)


def _q2_k_scales(b: Any, rows: Any, unit: Any) -> Scales:
    at = b.mul(unit, i64(84))
    d, dmin = _pairs(b, rows, _plus(b, at, 80))
    dmin = _negative(b, dmin)
    words = [_words(b, rows, _plus(b, at, 4 * i)) for i in range(4)]
    for i in range(16):
        yield _times(b, d, _byte(b, words, i, 0, 15)), _times(b, dmin, _byte(b, words, i, 4, 15))


def _q3_k_load(b: Any, row: Any, block: Any) -> Any:
    p = _super(b, row, block, 110)
    low = _bits(b, _load(b, b.add(_plus(b, p, 32), _part(b, block, 2, 1, 32))), _part(b, block, 0, 3, 2), 3)
    return b.or_(low, _bits(b, _load(b, p), _part(b, block, 0, 7, 1), 1, left=2))


def _masked(b: Any, x: Any, shift: int, mask: int, left: int = 0) -> Any:
    """Bits of every byte of 32-bit words."""
    k = V["i32"]
    return b.shl(b.and_(b.lshr(x, constant(k, shift)), constant(k, mask)), constant(k, left))


def _q3_k_scales(b: Any, rows: Any, unit: Any) -> Scales:
    at = b.mul(unit, i64(110))
    d = _halves(b, rows, _plus(b, at, 108))
    low0, low1, high = (_words(b, rows, _plus(b, at, 96 + 4 * i)) for i in range(3))
    words = []
    for i, (low, shift) in enumerate(((low0, 0), (low1, 0), (low0, 4), (low1, 4))):
        words.append(b.or_(_masked(b, low, shift, 0x0F0F0F0F), _masked(b, high, 2 * i, 0x03030303, left=4)))
    for i in range(16):
        yield _times(b, d, b.sub(_byte(b, words, i), constant(V["i32"], 32))), None


def _k4_scales(size: int) -> Callable[[Any, Any, Any], Scales]:
    """Q4_K and Q5_K: two halves, then twelve bytes that hold eight six-bit scales and eight mins."""

    def scales(b: Any, rows: Any, unit: Any) -> Scales:
        at = b.mul(unit, i64(size))
        d, dmin = _pairs(b, rows, at)
        dmin = _negative(b, dmin)
        a = [_words(b, rows, _plus(b, at, 4 + 4 * i)) for i in range(3)]
        words = [
            _masked(b, a[0], 0, 0x3F3F3F3F),
            b.or_(_masked(b, a[2], 0, 0x0F0F0F0F), _masked(b, a[0], 6, 0x03030303, left=4)),
            _masked(b, a[1], 0, 0x3F3F3F3F),
            b.or_(_masked(b, a[2], 4, 0x0F0F0F0F), _masked(b, a[1], 6, 0x03030303, left=4)),
        ]
        for i in range(8):
            yield _times(b, d, _byte(b, words, i)), _times(b, dmin, _byte(b, words, 8 + i))

    return scales


def _q4_k_load(b: Any, row: Any, block: Any) -> Any:
    p = b.add(_super(b, row, block, 144), _part(b, block, 1, 3, 32))
    return _bits(b, _load(b, _plus(b, p, 16)), _part(b, block, 0, 1, 4), 15)


def _q5_k_load(b: Any, row: Any, block: Any) -> Any:
    p = _super(b, row, block, 176)
    low = _bits(b, _load(b, b.add(_plus(b, p, 48), _part(b, block, 1, 3, 32))), _part(b, block, 0, 1, 4), 15)
    return b.or_(low, _bits(b, _load(b, _plus(b, p, 16)), _part(b, block, 0, 7, 1), 1, left=4))


def _q6_k_load(b: Any, row: Any, block: Any) -> Any:
    p = _super(b, row, block, 210)
    at = b.add(_part(b, block, 2, 1, 64), _part(b, block, 0, 1, 32))
    low = _bits(b, _load(b, b.add(p, at)), _part(b, block, 1, 1, 4), 15)
    high = _load(b, b.add(_plus(b, p, 128), _part(b, block, 2, 1, 32)))
    return b.or_(low, _bits(b, high, _part(b, block, 0, 3, 2), 3, left=4))


def _q6_k_scales(b: Any, rows: Any, unit: Any) -> Scales:
    at = b.mul(unit, i64(210))
    d = _halves(b, rows, _plus(b, at, 208))
    words = [_words(b, rows, _plus(b, at, 192 + 4 * i)) for i in range(4)]
    for i in range(16):
        left = b.shl(words[i // 4], constant(V["i32"], 24 - 8 * (i % 4)))
        yield _times(b, d, b.ashr(left, constant(V["i32"], 24))), None


BLOCKS: dict[int, Block] = {
    2: _simple(18, 2, offset=8),
    3: _simple(20, 4, mins=True),
    6: _simple(22, 6, high_bits=2, offset=16),
    7: _simple(24, 8, mins=True, high_bits=4),
    8: Block(_q8_0_load, _q8_0_scales, signed=True),
    10: Block(_q2_k_load, _q2_k_scales, 8, 2, mins=True),
    11: Block(_q3_k_load, _q3_k_scales, 8, 2, offset=4),
    12: Block(_q4_k_load, _k4_scales(144), 8, mins=True),
    13: Block(_q5_k_load, _k4_scales(176), 8, mins=True),
    14: Block(_q6_k_load, _q6_k_scales, 8, 2, offset=32),
}
"""Block types with kernels, by ggml's number."""
