"""Sixteen virtual lanes: the vector types and operations that kernels are written with.

The counterpart of csrc/kernels/simd.h, with the same IEEE operations in the same order, in LLVM's portable
vectors: the instruction set changes nothing but speed.  Memory is named by addresses, plain integers.

    F  16 floats
    T  a tile: 32 weights of 16 rows as int16; vector j holds weights 2j and 2j+1 of each row
"""

from __future__ import annotations

from typing import Any

from edgellm.backends.jit.intrinsics import Vector, call, define, pointer
from edgellm.backends.jit.lib import binding, config, extending, f32, float32, i8, i16, i32, int64, ir, void

LANES = 16
V = {name: ir.VectorType(t, LANES) for name, t in {"f32": f32, "i8": i8, "i16": i16, "i32": i32}.items()}
H = ir.VectorType(i16, 32)
MAGIC = 12582912.0
"""1.5 * 2**23: what is added to it rounds to an integer, to nearest, that its low bits then hold."""

F = Vector("F", V["f32"])
T = Vector("T", ir.ArrayType(H, LANES))


@extending.register_model(Vector)
class _Model(extending.models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Vector) -> None:
        super().__init__(manager, kind, kind.llvm)


def has(feature: str) -> bool:
    """Return whether code is made for a machine with an x86 feature."""
    given = config.CPU_FEATURES
    features = binding.get_host_cpu_features().flatten() if given is None else given
    return f"+{feature}" in features.split(",")


def splat(b: Any, value: Any, lanes: int = LANES) -> Any:
    """Repeat a scalar in every lane."""
    vector = ir.VectorType(value.type, lanes)
    first = b.insert_element(ir.Constant(vector, ir.Undefined), value, i32(0))
    return b.shuffle_vector(first, ir.Constant(vector, ir.Undefined), _mask([0] * lanes))


def constant(kind: Any, value: Any) -> Any:
    """Return a constant, in every lane of a vector type."""
    if isinstance(kind, ir.VectorType):
        return ir.Constant(kind, [kind.element(value)] * kind.count)
    return kind(value)


def _mask(lanes: Any) -> Any:
    lanes = list(lanes)
    return ir.Constant(ir.VectorType(i32, len(lanes)), [i32(i) for i in lanes])


def shuffle(b: Any, x: Any, y: Any, lanes: Any) -> Any:
    """Return the lanes of `x`, then `y`, that have these numbers."""
    return b.shuffle_vector(x, y, _mask(lanes))


def _first(b: Any, n: Any) -> Any:
    """Return the mask of the first n lanes."""
    numbers = ir.Constant(V["i32"], [i32(i) for i in range(LANES)])
    return b.icmp_signed("<", numbers, splat(b, b.trunc(n, i32)))


def load_first(b: Any, p: Any, kind: Any, n: Any) -> Any:
    """Load the first n lanes; the others are zero."""
    name = f"llvm.masked.load.v16{'f32' if kind == V['f32'] else 'i16'}.p0"
    return call(b, name, kind, pointer(b, p, kind), i32(2), _first(b, n), ir.Constant(kind, None))


@define(F, float32)
def f_set(b: Any, x: Any) -> Any:
    return splat(b, x)


@define(F)
def f_zero(b: Any) -> Any:
    return constant(V["f32"], 0.0)


@define(F, int64)
def f_load(b: Any, p: Any) -> Any:
    return b.load(pointer(b, p, V["f32"]), align=4)


@define(F, int64, int64)
def f_load_n(b: Any, p: Any, n: Any) -> Any:
    """Load the first n lanes; the others are zero."""
    return load_first(b, p, V["f32"], n)


@define(void, int64, F)
def f_store(b: Any, p: Any, x: Any) -> None:
    b.store(x, pointer(b, p, V["f32"]), align=4)


@define(void, int64, F, int64)
def f_store_n(b: Any, p: Any, x: Any, n: Any) -> None:
    """Store the first n lanes."""
    call(b, "llvm.masked.store.v16f32.p0", ir.VoidType(), x, pointer(b, p, V["f32"]), i32(4), _first(b, n))


@define(F, int64)
def f_splat_at(b: Any, p: Any) -> Any:
    return splat(b, b.load(pointer(b, p, f32), align=4))


@define(F, F, F)
def f_add(b: Any, x: Any, y: Any) -> Any:
    return b.fadd(x, y)


@define(F, F, F)
def f_sub(b: Any, x: Any, y: Any) -> Any:
    return b.fsub(x, y)


@define(F, F, F)
def f_mul(b: Any, x: Any, y: Any) -> Any:
    return b.fmul(x, y)


@define(F, F, F)
def f_div(b: Any, x: Any, y: Any) -> Any:
    return b.fdiv(x, y)


@define(F, F, F, F)
def f_fma(b: Any, x: Any, y: Any, z: Any) -> Any:
    """Return ``x * y + z``, rounded once."""
    return call(b, "llvm.fma.v16f32", V["f32"], x, y, z)


def maximum(b: Any, x: Any, y: Any) -> Any:
    """Return the larger one; `y` where one is not a number."""
    return b.select(b.fcmp_ordered(">", x, y), x, y)


@define(F, F, F)
def f_max(b: Any, x: Any, y: Any) -> Any:
    return maximum(b, x, y)


@define(F, F, F)
def f_min(b: Any, x: Any, y: Any) -> Any:
    return b.select(b.fcmp_ordered("<", x, y), x, y)


@define(F, F)
def f_abs(b: Any, x: Any) -> Any:
    return call(b, "llvm.fabs.v16f32", V["f32"], x)


@define(F, F, F)
def f_copysign(b: Any, x: Any, sign: Any) -> Any:
    return call(b, "llvm.copysign.v16f32", V["f32"], x, sign)


@define(F, F, F, F, F)
def f_if_less(b: Any, x: Any, y: Any, yes: Any, no: Any) -> Any:
    return b.select(b.fcmp_ordered("<", x, y), yes, no)


@define(F, F, int64, int64, float32)
def f_keep(b: Any, x: Any, first: Any, last: Any, other: Any) -> Any:
    """Keep lanes first..last-1, the others become `other`."""
    keep = b.and_(b.not_(_first(b, first)), _first(b, last))
    return b.select(keep, x, splat(b, other))


@define(F, F)
def f_power_of_two(b: Any, x: Any) -> Any:
    """Return two to the power of x, which was rounded by adding `MAGIC` and still has it added."""
    bits = b.shl(b.bitcast(x, V["i32"]), constant(V["i32"], 23))
    return b.bitcast(b.add(bits, constant(V["i32"], 127 << 23)), V["f32"])


def _tree(b: Any, x: Any, join: Any) -> Any:
    """Join lane i with i+8, then i+4, i+2 and i+1."""
    n = LANES
    while n > 1:
        n //= 2
        x = join(shuffle(b, x, x, range(n)), shuffle(b, x, x, range(n, 2 * n)))
    return b.extract_element(x, i32(0))


@define(float32, F)
def f_sum(b: Any, x: Any) -> Any:
    return _tree(b, x, b.fadd)


@define(float32, F)
def f_largest(b: Any, x: Any) -> Any:
    return _tree(b, x, lambda y, z: maximum(b, y, z))


@define(float32, F)
def f_first(b: Any, x: Any) -> Any:
    return b.extract_element(x, i32(0))


@define(F, float32, float32, float32, float32)
def f_join(b: Any, x: Any, y: Any, z: Any, w: Any) -> Any:
    """Return the vector that begins with four numbers and goes on with zeros."""
    found = constant(V["f32"], 0.0)
    for i, value in enumerate((x, y, z, w)):
        found = b.insert_element(found, value, i32(i))
    return found


@define(float32, F, int64)
def store_rounded(b: Any, x: Any, p: Any) -> Any:
    """Store 16 floats of at most 127 as int16, rounded to nearest; return their sum."""
    bits = b.bitcast(b.fadd(x, constant(V["f32"], MAGIC)), V["i32"])
    q = b.sext(b.trunc(bits, V["i8"]), V["i32"])
    b.store(b.trunc(q, V["i16"]), pointer(b, p, V["i16"]), align=2)
    return b.sitofp(_tree(b, q, b.add), f32)


@define(float32, float32)
def root(b: Any, x: Any) -> Any:
    """Return the square root, correctly rounded."""
    return call(b, "llvm.sqrt.f32", f32, x)
