"""A Program lowered to the arrays of csrc/edgellm.h: slots, ops, states and ropes as plain numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from edgellm.backends.base import Weight
from edgellm.program import Op, Program, RopeSpec
from edgellm.program.ops import (
    Add,
    Attention,
    Embed,
    Glu,
    MatMul,
    PositionScale,
    RmsNorm,
    Rope,
    Scale,
    SelectRows,
    Softcap,
)
from edgellm.program.plan import plan

OP = np.dtype(
    [(name, np.int32) for name in ("kind", "flags", "out", "a", "b", "c", "width", "size", "n_head", "activation")]
    + [(name, np.int32) for name in ("weight", "scale", "bias", "state", "rope")]
    + [("f0", np.float32), ("f1", np.float32)]
)
"""edge_op."""

STATE = np.dtype([(name, np.int32) for name in ("n_head_kv", "head_dim", "head_dim_v", "group", "window", "rope")])
"""edge_state."""

WANTED, NO_WAIT = 1, 2
QUANTIZE = 1
KINDS: dict[type, int] = {
    Embed: 0,
    MatMul: 2,
    RmsNorm: 3,
    Rope: 4,
    Attention: 5,
    Add: 6,
    Scale: 7,
    Glu: 8,
    Softcap: 9,
    SelectRows: 10,
    PositionScale: 11,
}
ACTIVATIONS = {"silu": 0, "gelu": 1}
LOGITS = -1


@dataclass
class Lowered:
    """The arguments of `_native.Executor`, in its order."""

    ops: npt.NDArray[Any]
    weights: list[tuple[Any, int, int, int, int]]
    slots: npt.NDArray[np.int32]
    states: npt.NDArray[Any]
    ropes: list[tuple[npt.NDArray[np.float64], int, float]]


def lower(program: Program, weights: Mapping[str, Weight]) -> Lowered:
    """Lower a verified program.  Matrices stay the file's bytes; vectors become float32."""
    return _Lowering(program, weights).run()


@dataclass
class _Lowering:
    program: Program
    weights: Mapping[str, Weight]
    rows: list[dict[str, Any]] = field(default_factory=list)
    found: dict[tuple[str, str | None], int] = field(default_factory=dict)
    table: list[tuple[Any, int, int, int, int]] = field(default_factory=list)
    ropes: dict[RopeSpec, int] = field(default_factory=dict)

    def run(self) -> Lowered:
        program = self.program
        self.plan = plan(program)
        self.state_index = {name: i for i, name in enumerate(program.states)}
        self.wanted = _made_of_wanted_rows(program.ops)
        quantized: str | None = None
        for i, op in enumerate(program.ops):
            if isinstance(op, MatMul):
                if not _is_float(self.weights[op.weight]) and quantized != op.x:
                    self._emit_quantize(op)
                    quantized = op.x
                follows = program.ops[i + 1] if i + 1 < len(program.ops) else None
                together = isinstance(follows, MatMul) and follows.x == op.x
                # The next op of such a run may be a quantization, which must not start before its matmuls end.
                together = together and (quantized == op.x or _is_float(self.weights[follows.weight]))  # type: ignore[union-attr]
                self._emit(op, NO_WAIT if together else 0)
            else:
                self._emit(op)
            if quantized is not None and self.plan.slots[op.out] == self.plan.slots[quantized]:
                quantized = None
        return Lowered(
            self._array(self.rows, OP),
            self.table,
            np.array(self.plan.widths, np.int32),
            self._array(self._states(), STATE),
            [self._rope_row(spec) for spec in self.ropes],
        )

    def _array(self, rows: list[dict[str, Any]], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        return np.array([tuple(row.get(name, 0) for name in dtype.names or ()) for row in rows], dtype)

    def _slot(self, value: str) -> int:
        slot = self.plan.slots[value]
        return LOGITS if slot is None else slot

    def _emit(self, op: Op, flags: int = 0) -> None:
        row: dict[str, Any] = dict.fromkeys(("weight", "scale", "bias", "state", "rope"), -1)
        row |= {"kind": KINDS[type(op)], "out": self._slot(op.out), "width": self.program.widths[op.out]}
        row["flags"] = flags | (WANTED if op.out in self.wanted else 0)
        match op:
            case Embed(weight=weight):
                row["weight"] = self._matrix(weight)
            case MatMul(x=x, weight=weight, bias=bias, scale=scale, scaled_bias=scaled_bias):
                row |= {"a": self._slot(x), "weight": self._matrix(weight)}
                row["scale"] = self._vector(scale)
                row["bias"] = self._vector(bias, times=scale if scaled_bias else None)
            case RmsNorm(x=x, weight=norm, eps=eps, size=size):
                row |= {"a": self._slot(x), "weight": self._vector(norm), "f0": eps, "size": size}
            case Rope(x=x, head_dim=head_dim, spec=spec):
                row |= {"a": self._slot(x), "size": head_dim, "rope": self._rope(spec)}
            case Attention(q=q, k=k, v=v, state=state, n_head=n_head, scale=factor, softcap=cap):
                row |= {"a": self._slot(q), "b": self._slot(k), "c": self._slot(v), "n_head": n_head}
                row |= {"state": self.state_index[state], "f0": factor, "f1": cap or 0.0}
            case Add(a=a, b=b):
                row |= {"a": self._slot(a), "b": self._slot(b)}
            case Scale(x=x, factor=factor):
                row |= {"a": self._slot(x), "f0": factor}
            case PositionScale(x=x, factor=factor, period=period):
                row |= {"a": self._slot(x), "f0": factor, "size": period}
            case Glu(gate=gate, up=up, activation=activation):
                row |= {"a": self._slot(gate), "b": self._slot(up), "activation": ACTIVATIONS[activation]}
            case Softcap(x=x, cap=cap):
                row |= {"a": self._slot(x), "f0": cap}
            case SelectRows(x=x):
                row["a"] = self._slot(x)
        self.rows.append(row)

    def _emit_quantize(self, op: MatMul) -> None:
        row: dict[str, Any] = {"kind": QUANTIZE, "a": self._slot(op.x), "width": self.program.widths[op.x]}
        row["flags"] = WANTED if op.x in self.wanted else 0
        self.rows.append(row)

    def _add_weight(self, key: tuple[str, str | None], row: tuple[Any, int, int, int, int]) -> int:
        self.found[key] = len(self.table)
        self.table.append(row)
        return self.found[key]

    def _matrix(self, name: str) -> int:
        if (name, "matrix") in self.found:
            return self.found[name, "matrix"]
        weight = self.weights[name]
        n_in, n_out = self.program.weights[name]
        row_bytes = weight.dtype.row_bytes(n_in)
        return self._add_weight((name, "matrix"), (weight.data, weight.dtype.id, n_in, n_out, row_bytes))

    def _vector(self, name: str | None, times: str | None = None) -> int:
        if name is None:
            return -1
        if (name, times) in self.found:
            return self.found[name, times]
        values = floats(self.weights[name])
        if times is not None:
            values = values * floats(self.weights[times])
        return self._add_weight((name, times), (values, 0, len(values), 1, values.nbytes))

    def _rope(self, spec: RopeSpec) -> int:
        return self.ropes.setdefault(spec, len(self.ropes))

    def _rope_row(self, spec: RopeSpec) -> tuple[npt.NDArray[np.float64], int, float]:
        frequencies = np.array(spec.inv_freq, np.float64)
        if spec.factors is not None:
            frequencies = frequencies / floats(self.weights[spec.factors]).astype(np.float64)
        return frequencies, int(spec.style == "neox"), spec.magnitude

    def _states(self) -> list[dict[str, Any]]:
        return [
            {
                "n_head_kv": s.n_head_kv,
                "head_dim": s.head_dim,
                "head_dim_v": s.head_dim_v,
                "group": self.program.group(s.name),
                "window": s.window or 0,
                "rope": -1 if s.rope is None else self._rope(s.rope),
            }
            for s in self.program.states.values()
        ]


def floats(weight: Weight) -> npt.NDArray[np.float32]:
    """Return a vector of a float type as float32."""
    if weight.dtype.name == "F32":
        values = np.frombuffer(weight.data, np.float32)
    elif weight.dtype.name == "F16":
        values = np.frombuffer(weight.data, np.float16).astype(np.float32)
    else:
        values = (np.frombuffer(weight.data, np.uint16).astype(np.uint32) << 16).view(np.float32)
    return np.ascontiguousarray(values)


def _is_float(weight: Weight) -> bool:
    return weight.dtype.block == 1


def _made_of_wanted_rows(ops: tuple[Op, ...]) -> set[str]:
    """Return the values whose rows are the wanted ones: what SelectRows makes, and all that is made of it."""
    from edgellm.program.ops import inputs

    wanted: set[str] = set()
    for op in ops:
        if isinstance(op, SelectRows) or any(name in wanted for name in inputs(op)):
            wanted.add(op.out)
    return wanted
