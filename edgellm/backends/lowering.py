"""A Program lowered to the arrays of csrc/edgellm.h: slots, ops, states and ropes as plain numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from edgellm.backends.base import Weight
from edgellm.backends.weight_table import WeightTable, floats
from edgellm.program import Op, Program, RopeSpec
from edgellm.program.experts import MatMulExperts, Mix, Route
from edgellm.program.ops import (
    Activate,
    Add,
    Attention,
    Concat,
    Dot,
    Embed,
    Glu,
    L2Norm,
    LayerNorm,
    MatMul,
    Mul,
    PositionScale,
    RmsNorm,
    Rope,
    Scale,
    SelectRows,
    Sinkhorn,
    Slice,
    Softcap,
    Softmax,
    Xielu,
    inputs,
)
from edgellm.program.plan import plan
from edgellm.program.recurrent import Conv1d, GatedDelta, SsmScan

OP = np.dtype(
    [
        (name, np.int32)
        for name in ("kind", "flags", "out", "a", "b", "c", "d", "e", "width", "size", "n_head", "activation")
    ]
    + [(name, np.int32) for name in ("weight", "scale", "bias", "state", "rope")]
    + [("f0", np.float32), ("f1", np.float32)]
)
"""edge_op."""

STATE = np.dtype(
    [(name, np.int32) for name in ("n_head_kv", "head_dim", "head_dim_v", "group")]
    + [(name, np.int32) for name in ("window", "rope", "offset", "chunked", "both")]
)
"""edge_state."""

FLOATS = -1
"""Not an op: float matrices read their input as it is."""
WANTED, NO_WAIT, FIXED, SHARED, POSITION, BORROW, FUSED = 1, 2, 4, 8, 16, 32, 64
QUANTIZE, GATHER = 1, 24
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
    L2Norm: 12,
    Conv1d: 13,
    SsmScan: 14,
    GatedDelta: 15,
    Mul: 16,
    Slice: 17,
    LayerNorm: 18,
    Activate: 19,
    Concat: 20,
    Dot: 21,
    Mix: 22,
    Route: 23,
    MatMulExperts: 25,
    Softmax: 26,
    Sinkhorn: 27,
    Xielu: 28,
}
ACTIVATIONS = {
    name: i for i, name in enumerate(("silu", "gelu", "sigmoid", "gelu_quick", "relu", "relu2", "softplus", "tanh"))
}
SCORINGS = {"softmax": 0, "sigmoid": 1, "chosen": 2}
LOGITS = -1


@dataclass
class Lowered:
    """The arguments of `_native.Executor`, in its order."""

    ops: npt.NDArray[Any]
    weights: list[tuple[Any, int, int, int, int]]
    slots: npt.NDArray[np.int32]
    states: npt.NDArray[Any]
    recurrent: npt.NDArray[np.int32]
    ropes: list[tuple[npt.NDArray[np.float64], int, float]]
    embedding: int
    """Index in `ops` of the one that makes the embeddings, or -1."""
    calls: tuple[str, ...]
    """Names of the functions of `edgellm.backends.jit.calls` that ops use: of those that no kernel in C knows."""


def lower(program: Program, weights: Mapping[str, Weight]) -> Lowered:
    """Lower a verified program.  Matrices stay the file's bytes; vectors become float32."""
    return _Lowering(program, weights).run()


@dataclass
class _Lowering:
    program: Program
    weights: Mapping[str, Weight]
    rows: list[dict[str, Any]] = field(default_factory=list)
    ropes: dict[RopeSpec, int] = field(default_factory=dict)
    embedding: int = -1
    calls: dict[str, int] = field(default_factory=dict)

    def run(self) -> Lowered:
        program = self.program
        self.table = WeightTable(program.weights, self.weights)
        self.plan = plan(program)
        self.state_index = {name: i for names in (program.states, program.recurrent) for i, name in enumerate(names)}
        self.wanted = _made_of_wanted_rows(program.ops)
        self.uses = Counter(name for op in program.ops for name in inputs(op))
        self.uses += Counter([program.embedding]) if program.embedding else Counter()
        quantized, gathered = "", tuple[Any, ...]()
        for i, op in enumerate(program.ops):
            needs = self._input_of(op)
            follows = self._input_of(program.ops[i + 1]) if i + 1 < len(program.ops) else ()
            # What follows may run at the same time only if it reads the same value, as it lies there now.
            together = bool(needs) and (follows == needs or (isinstance(op, MatMul) and follows == (FLOATS, op.x)))
            now, beside = self._quantized_by(op), "" if together else self._quantized_beside(i)
            if (now or beside or quantized) != quantized:
                quantized = now or beside
                self._emit_quantize(quantized, 0 if now else NO_WAIT)
            if isinstance(op, MatMulExperts):
                fused = self._is_mixture(i)
                if needs != gathered or fused:
                    self._emit_gather(op, FUSED if fused else 0)
                gathered = needs
            self._emit(op, NO_WAIT if together else 0)
            if op.out == program.embedding:
                self.embedding = len(self.rows) - 1
            slots = self.plan.slots
            quantized = "" if quantized and slots[quantized] == slots[op.out] else quantized
            gathered = () if slots[op.out] in [slots[name] for name in gathered[1:3]] else gathered
        return Lowered(
            self._array(self.rows, OP),
            self.table.rows,
            np.array(self.plan.widths, np.int32),
            self._array(self._states(), STATE),
            np.array([(*s.shape, 1)[:3] for s in program.recurrent.values()], np.int32).reshape(-1, 3),
            [self._rope_row(spec) for spec in self.ropes],
            self.embedding,
            tuple(self.calls),
        )

    def _input_of(self, op: Op) -> tuple[Any, ...]:
        """Return how and from which values a matrix product's input is made ready; nothing for other ops."""
        if isinstance(op, MatMul):
            return FLOATS if _is_float(self.weights[op.weight]) else QUANTIZE, op.x
        if isinstance(op, MatMulExperts):
            floats = _is_float(self.weights[op.weight])
            return GATHER, op.x, op.routes or op.x, op.n_slots, self.program.weights[op.weight][2], floats
        return ()

    def _quantized_by(self, op: Op) -> str:
        """Return the value whose rows must be quantized before an op; nothing for most."""
        if not isinstance(op, MatMul | MatMulExperts) or _is_float(self.weights[op.weight]):
            return ""
        return op.x if isinstance(op, MatMul) or self._is_shared(op) else ""

    def _quantized_beside(self, i: int) -> str:
        """Return what op `i`, a product of floats, reads, if one of the next products wants that quantized."""
        match self.program.ops[i]:
            case MatMul(x=x, weight=weight) if _is_float(self.weights[weight]):
                return x if any(self._quantized_by(op) == x for op in self.program.ops[i + 1 : i + 6]) else ""
        return ""

    def _is_shared(self, op: MatMulExperts) -> bool:
        """Return whether all slots of a row have the same input."""
        return op.n_slots > 1 and self.program.widths[op.x] == self.program.weights[op.weight][0]

    def _is_mixture(self, i: int) -> bool:
        """Return whether ops `i` to `i` + 3 are gate, up, what makes one of both, and down, and only these use them."""
        match self.program.ops[i : i + 4]:
            case [
                MatMulExperts(out=a) as first,
                MatMulExperts(out=b) as second,
                Glu(gate=gate, up=up, out=h),
                MatMulExperts(x=x, routes=routes) as down,
            ]:
                alike = self._input_of(first) == self._input_of(second) and routes == first.routes
                return (
                    alike
                    and {gate, up} == {a, b}
                    and x == h
                    and self.program.widths[a] == self.program.widths[b] == self.program.widths[h]
                    and down.n_slots == first.n_slots
                    and not self._is_shared(down)
                    and not any(_is_float(self.weights[op.weight]) for op in (first, down))
                    and all(self.uses[name] == 1 for name in (a, b, h))
                )
        return False

    def _array(self, rows: list[dict[str, Any]], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        return np.array([tuple(row.get(name, 0) for name in dtype.names or ()) for row in rows], dtype)

    def _slot(self, value: str) -> int:
        slot = self.plan.slots[value]
        return LOGITS if slot is None else slot

    def _emit(self, op: Op, flags: int = 0) -> None:
        row: dict[str, Any] = dict.fromkeys(("weight", "scale", "bias", "state", "rope"), -1)
        row |= {"kind": KINDS[type(op)], "out": self._slot(op.out), "width": self.program.widths[op.out]}
        row["flags"] = flags | (WANTED if op.out in self.wanted else 0)
        table, vector = self.table, self.table.vector
        match op:
            case Embed(weight=weight, by=by):
                # The one row of a shorter table is that of every position.
                row["weight"] = table.matrix(weight, slice(0, 1) if by == "first" else None)
                row["flags"] |= 0 if by == "token" else POSITION
            case MatMul(x=x, weight=weight, bias=bias, scale=scale, scaled_bias=scaled_bias, first=first):
                rows = slice(first, first + row["width"])
                row |= {"a": self._slot(x), "weight": table.matrix(weight, rows)}
                row["scale"] = vector(scale)
                row["bias"] = vector(bias, times=scale if scaled_bias else None, rows=rows)
            case MatMulExperts(x=x, weight=weight, bias=bias, scale=scale, n_slots=n_slots, first=first):
                row |= {
                    "weight": table.stack(weight),
                    "scale": vector(scale),
                    "bias": vector(bias),
                }
                row |= {"n_head": n_slots, "size": self.program.weights[weight][1], "d": first}
            case Route(x=x, n_used=n_used, scoring=scoring, normalised=normalised, bias=bias, scale=factor):
                row |= {"a": self._slot(x), "size": self.program.widths[x], "n_head": n_used, "f0": factor}
                row |= {"activation": SCORINGS[scoring] + 4 * normalised, "weight": vector(bias)}
                row |= {"d": op.n_groups, "e": op.n_groups_used}
            case Mix(x=x, by=by, size=size):
                row |= {"a": self._slot(x), "b": self._slot(by), "size": size, "n_head": self.program.widths[x] // size}
            case Dot(a=a, b=b, size=size):
                row |= {"a": self._slot(a), "b": self._slot(b), "size": size}
            case Concat(a=a, b=b, runs=runs, shared=shared):
                row |= {"a": self._slot(a), "b": self._slot(b), "size": self.program.widths[a] // runs}
                row |= {"n_head": self.program.widths[b] // (1 if shared else runs), "activation": int(shared)}
            case LayerNorm(x=x, weight=norm, bias=bias, eps=eps, size=size, centred=centred):
                row |= {"a": self._slot(x), "weight": vector(norm), "bias": vector(bias)}
                row |= {"f0": eps, "size": size, "activation": int(centred)}
            case Activate(x=x, activation=activation):
                row |= {"a": self._slot(x), "activation": ACTIVATIONS[activation]}
            case Xielu(x=x):
                params = (op.alpha_p, op.alpha_n, op.beta, op.eps)
                row |= {"a": self._slot(x), "size": self.program.widths[x], **self._call("xielu", params)}
            case RmsNorm(x=x, weight=norm, eps=eps, size=size):
                row |= {"a": self._slot(x), "weight": vector(norm), "f0": eps, "size": size}
            case Rope(x=x, head_dim=head_dim, spec=spec):
                row |= {"a": self._slot(x), "size": head_dim, "rope": self._rope(spec), "d": spec.offset}
            case Attention(q=q, k=k, v=v, state=state, n_head=n_head, scale=factor, softcap=cap):
                if k is None or v is None:
                    row["flags"] |= BORROW
                else:
                    row |= {"b": self._slot(k), "c": self._slot(v)}
                row |= {"a": self._slot(q), "n_head": n_head, "weight": vector(op.sinks)}
                row["bias"] = table.slopes(n_head, op.alibi)
                row |= {"state": self.state_index[state], "f0": factor, "f1": cap or 0.0}
            case Add(a=a, b=b):
                row |= {"a": self._slot(a), "b": self._slot(b)}
            case Scale(x=x, factor=factor, weight=weight, shift=shift):
                row |= {"a": self._slot(x), "f0": factor, "f1": shift}
                if weight is not None:
                    row["weight"] = table.factors(weight, factor, op.inverse)
                    row["size"] = row["width"] // math.prod(self.program.weights[weight])
            case PositionScale(x=x, factor=factor, period=period, offset=offset):
                row |= {"a": self._slot(x), "f0": factor, "size": period, "n_head": offset}
            case Glu(gate=gate, up=up, activation=activation, limit=limit, offset=offset):
                row |= {"a": self._slot(gate), "b": self._slot(up), "activation": ACTIVATIONS[activation]}
                row |= {"f0": limit, "f1": offset, "size": row["width"] // self.program.widths[gate]}
            case Softcap(x=x, cap=cap, hard=hard):
                row |= {"a": self._slot(x), "f0": cap, "size": int(hard)}
            case Sinkhorn(x=x, size=size, rounds=rounds, eps=eps):
                row |= {"a": self._slot(x), "size": size, "n_head": rounds, "f0": eps}
            case Softmax(x=x, size=size):
                row |= {"a": self._slot(x), "size": size}
            case SelectRows(x=x):
                row["a"] = self._slot(x)
            case Mul(a=a, b=b):
                row |= {"a": self._slot(a), "b": self._slot(b), "size": row["width"] // self.program.widths[b]}
            case Slice(x=x, size=size, start=start):
                runs = self.program.widths[x] // size
                row |= {"a": self._slot(x), "size": size, "n_head": row["width"] // runs, "activation": start}
            case L2Norm(x=x, eps=eps, size=size):
                row |= {"a": self._slot(x), "f0": eps, "size": size}
            case Conv1d(x=x, weight=weight, bias=bias, state=state, silu=silu):
                row |= {
                    "a": self._slot(x),
                    "weight": table.taps(weight, row["width"]),
                    "bias": vector(bias),
                }
                row |= {"state": self.state_index[state], "size": int(silu)}
            case SsmScan(x=x, dt=dt, b=b, c=c, a=weight, d=scale, bias=bias, state=state, n_group=n_group):
                row |= {"a": self._slot(x), "b": self._slot(dt), "c": self._slot(b), "d": self._slot(c)}
                row |= {
                    "weight": vector(weight),
                    "scale": vector(scale),
                    "bias": vector(bias),
                }
                row |= {"state": self.state_index[state], "n_head": n_group}
            case GatedDelta(q=q, k=k, v=v, g=g, beta=beta, a=weight, bias=bias, state=state):
                row |= {"a": self._slot(q), "b": self._slot(k), "c": self._slot(v)}
                row |= {"d": self._slot(g), "e": self._slot(beta), "n_head": op.n_head_k, "size": int(op.grouped)}
                row |= {"weight": vector(weight), "bias": vector(bias)}
                row |= {"state": self.state_index[state], "f0": op.scale}
                row["activation"] = int(self.program.widths[g] > self.program.widths[beta])
        self.rows.append(row)

    def _emit_quantize(self, x: str, flags: int) -> None:
        row: dict[str, Any] = dict.fromkeys(("weight", "scale", "bias", "state", "rope"), -1)
        row |= {"kind": QUANTIZE, "a": self._slot(x), "width": self.program.widths[x]}
        self.rows.append(row | {"flags": flags | (WANTED if x in self.wanted else 0)})

    def _emit_gather(self, op: MatMulExperts, flags: int) -> None:
        """Sort what the slots of all rows read by expert."""
        row: dict[str, Any] = dict.fromkeys(("weight", "scale", "bias", "state", "rope"), -1)
        n_in, _, n_expert = self.program.weights[op.weight]
        row |= {"kind": GATHER, "width": n_in, "size": n_expert, "n_head": op.n_slots, "a": self._slot(op.x)}
        row |= {"b": self._slot(op.routes or op.x), "activation": int(_is_float(self.weights[op.weight]))}
        flags |= (SHARED if self._is_shared(op) else 0) | (FIXED if op.routes is None else 0)
        self.rows.append(row | {"flags": flags | (WANTED if op.x in self.wanted else 0)})

    def _call(self, name: str, params: tuple[float, ...]) -> dict[str, int]:
        """Return the part of a row that says which function to call, and with which parameters."""
        return {"d": self.calls.setdefault(name, len(self.calls)), "weight": self.table.numbers(params)}

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
                "offset": 0 if s.rope is None else s.rope.offset,
                "chunked": int(s.chunked),
                "both": int(not s.causal),
            }
            for s in self.program.states.values()
        ]


def _is_float(weight: Weight) -> bool:
    return weight.dtype.block == 1


def _made_of_wanted_rows(ops: tuple[Op, ...]) -> set[str]:
    """Return the values whose rows are the wanted ones: what SelectRows makes, and all that is made of it."""
    wanted: set[str] = set()
    for op in ops:
        if isinstance(op, SelectRows) or any(name in wanted for name in inputs(op)):
            wanted.add(op.out)
    return wanted
