"""The check between a file and the backends: what passes here may be run without further questions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Protocol

from edgellm.dtypes import DType
from edgellm.errors import ModelFormatError
from edgellm.program.check import check_ops
from edgellm.program.experts import MatMulExperts, Route
from edgellm.program.ops import Attention, LayerNorm, MatMul, Op, RmsNorm, Rope, Scale
from edgellm.program.program import Program
from edgellm.program.recurrent import Conv1d, GatedDelta, SsmScan

_SHOWN = 10
_VECTOR_TYPES = ("F32", "F16", "BF16")


class TensorLike(Protocol):
    """What `verify` needs to know of a tensor."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes, the fastest axis first."""

    @property
    def dtype(self) -> DType:
        """How the elements are stored."""


def verify(program: Program, tensors: Mapping[str, TensorLike]) -> None:
    """Check that `program` is consistent and that `tensors` are just what it needs.

    Raises one ModelFormatError that lists everything that is wrong: ops that do not fit together,
    and tensors that are missing, superfluous, of the wrong shape or of a type no vector may have.
    """
    needed = {name: shape for name, shape in program.weights.items() if name not in program.constants}
    found = {name: tensors[name] for name in needed if name in tensors}
    vectors = {name for op in program.ops for name in _vectors(op)}
    sections = [
        ("inconsistent ops", check_ops(program)),
        ("missing tensors", [f"{name} {_shape(needed[name])}" for name in needed if name not in tensors]),
        (
            "tensors of the wrong shape",
            [
                f"{name} is {_shape(tensor.shape)}, must be {_shape(needed[name])}"
                for name, tensor in found.items()
                if _trimmed(tensor.shape) != _trimmed(needed[name])
            ],
        ),
        (
            "tensors of the wrong type",
            [
                f"{name} is {tensor.dtype.name}, must be one of {', '.join(_VECTOR_TYPES)}"
                for name, tensor in found.items()
                if name in vectors and tensor.dtype.name not in _VECTOR_TYPES
            ],
        ),
        (
            "unexpected tensors",
            [name for name in tensors if name not in needed and not _matches(name, program.ignored)],
        ),
    ]
    wrong = [f"{title} ({len(items)}): {_listed(items)}" for title, items in sections if items]
    if wrong:
        raise ModelFormatError(f"not a valid {program.architecture} model: " + "; ".join(wrong))


def _vectors(op: Op) -> Iterator[str]:
    """Yield the tensors that `op` reads as plain numbers."""
    names: tuple[str | None, ...] = ()
    match op:
        case MatMul() | MatMulExperts():
            names = (op.bias, op.scale)
        case LayerNorm():
            names = (op.weight, op.bias)
        case Attention():
            names = (op.sinks,)
        case Route():
            names = (op.bias,)
        case RmsNorm() | Scale():
            names = (op.weight,)
        case Rope():
            names = (op.spec.factors,)
        case Conv1d():
            names = (op.weight, op.bias)
        case SsmScan():
            names = (op.a, op.d, op.bias)
        case GatedDelta():
            names = (op.a, op.bias)
    yield from (name for name in names if name is not None)


def _trimmed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Drop trailing axes of one element, which GGUF writers add and leave out as they like."""
    while len(shape) > 1 and shape[-1] == 1:
        shape = shape[:-1]
    return shape


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _shape(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "a scalar"


def _listed(items: list[str]) -> str:
    text = ", ".join(items[:_SHOWN])
    rest = len(items) - _SHOWN
    return f"{text} and {rest} more" if rest > 0 else text
