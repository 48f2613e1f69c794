"""What makes the ops on single rows fit together: mixtures of experts, narrower inputs, activations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import get_args

from edgellm.program.experts import MatMulExperts, Mix, Route, Scoring
from edgellm.program.ops import Activate, Activation, Concat, Dot, Glu, Mul, Scale, Xielu
from edgellm.program.program import Program

RowOp = Activate | Concat | Dot | Glu | MatMulExperts | Mix | Mul | Route | Scale | Xielu


def check_row_op(program: Program, op: RowOp, width: Mapping[str, int]) -> Iterator[str]:
    """Yield what is wrong with one op; `width` has those of its inputs and its output."""
    out = width[op.out]
    match op:
        case Activate():
            yield from _same(width, op.x, out)
            yield from _activation(op.activation)
        case Xielu():
            yield from _same(width, op.x, out)
            numbers = (op.alpha_p, op.alpha_n, op.beta, op.eps)
            if not all(map(math.isfinite, numbers)):
                yield f"the parameters are {numbers}"
        case Glu():
            yield from _same(width, op.up, out)
            yield from _covers(width, op.gate, out)
            yield from _activation(op.activation)
            if not (math.isfinite(op.limit) and op.limit >= 0.0 and math.isfinite(op.offset)):
                yield f"the limit is {op.limit}, the offset {op.offset}"
        case Mul():
            yield from _same(width, op.a, out)
            yield from _covers(width, op.b, out)
        case Scale():
            yield from _same(width, op.x, out)
            if op.weight is not None:
                n = math.prod(program.weights.get(op.weight, (0,)))
                if n < 1 or out % n:
                    yield f"{op.weight} has {n} values, which do not divide {out}"
            if not (math.isfinite(op.factor) and math.isfinite(op.shift)):
                yield f"the factor is {op.factor}, the shift {op.shift}"
        case Dot():
            yield from _same(width, op.b, width[op.a])
            if op.size < 1 or width[op.a] != out * op.size:
                yield f"{width[op.a]} values do not make {out} sums of {op.size}"
        case Concat():
            joined = width[op.a] + width[op.b] * (op.runs if op.shared else 1)
            parts = (width[op.a],) if op.shared else (width[op.a], width[op.b])
            if op.runs < 1 or any(n % op.runs for n in parts) or joined != out:
                yield f"{width[op.a]} and {width[op.b]} values in {op.runs} runs do not make {out}"
        case Mix():
            n_in, n_out = width[op.x] // max(1, op.size), out // max(1, op.size)
            if op.size < 1 or n_in * op.size != width[op.x] or n_out * op.size != out:
                yield f"runs of {op.size} divide neither {width[op.x]} nor {out}"
            elif width[op.by] != n_in * n_out:
                yield f"{op.by} is {width[op.by]} wide, must be {n_in * n_out}"
        case Route():
            yield from _route(program, op, width[op.x], out)
        case MatMulExperts():
            yield from _experts(program, op, width)


def _route(program: Program, op: Route, n_expert: int, out: int) -> Iterator[str]:
    if op.scoring not in get_args(Scoring):
        yield f"the scoring is {op.scoring!r}"
    if op.n_groups < 1 or n_expert % op.n_groups or not 1 <= op.n_groups_used <= op.n_groups:
        yield f"uses {op.n_groups_used} of {op.n_groups} groups of {n_expert} experts"
        return
    choice = n_expert // op.n_groups * op.n_groups_used
    if not 1 <= op.n_used <= choice or out != 2 * op.n_used:
        yield f"is {out} wide for {op.n_used} of {choice} experts"
    if op.bias is not None and math.prod(program.weights.get(op.bias, (0,))) != n_expert:
        yield f"{op.bias} is not a vector of {n_expert}"
    if not math.isfinite(op.scale):
        yield f"the scale is {op.scale}"


def _experts(program: Program, op: MatMulExperts, width: Mapping[str, int]) -> Iterator[str]:
    shape = program.weights.get(op.weight, ())
    if len(shape) != 3 or min(shape) < 1 or op.n_slots < 1:
        yield f"uses {op.weight} as a stack of matrices for {op.n_slots} slots, but the program declares {shape}"
        return
    n_in, n_all, n_expert = shape
    n_out = width[op.out] // op.n_slots
    if n_out * op.n_slots != width[op.out] or not 0 <= op.first <= n_all - n_out:
        yield f"takes {width[op.out]} values for {op.n_slots} slots from row {op.first} of {n_all}"
    if width[op.x] not in (n_in, n_in * op.n_slots):
        yield f"{op.x} is {width[op.x]} wide, must be {n_in} or {n_in * op.n_slots}"
    if op.routes is None and n_expert != op.n_slots:
        yield f"has {n_expert} matrices for {op.n_slots} slots"
    if op.routes is not None and width[op.routes] != 2 * op.n_slots:
        yield f"{op.routes} is {width[op.routes]} wide, must be {2 * op.n_slots}"
    for name, expected in ((op.bias, (n_all, n_expert)), (op.scale, (n_expert,))):
        if name is not None and program.weights.get(name) != expected:
            yield f"uses {name} as {expected}, but the program declares {program.weights.get(name)}"


def _same(width: Mapping[str, int], name: str, expected: int) -> Iterator[str]:
    if width[name] != expected:
        yield f"is {expected} wide, but reads {name} of {width[name]}"


def _covers(width: Mapping[str, int], name: str, whole: int) -> Iterator[str]:
    if width[name] < 1 or whole % width[name]:
        yield f"is {whole} wide, but reads {name} of {width[name]}"


def _activation(name: str) -> Iterator[str]:
    if name not in get_args(Activation):
        yield f"the activation is {name!r}"
