"""What makes a list of ops a program: names, widths, heads, states and row counts that fit together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import get_args

from edgellm.program.check_recurrent import check_recurrent
from edgellm.program.check_rows import RowOp, check_row_op
from edgellm.program.ops import (
    Add,
    Attention,
    Embed,
    KVState,
    L2Norm,
    LayerNorm,
    MatMul,
    Op,
    PositionScale,
    RmsNorm,
    Rope,
    RopeSpec,
    SelectRows,
    Sinkhorn,
    Slice,
    Softcap,
    Softmax,
    inputs,
)
from edgellm.program.program import Program
from edgellm.program.recurrent import Conv1d, GatedDelta, SsmScan


def check_ops(program: Program) -> list[str]:
    """Return everything about the ops themselves that makes no sense, in program order."""
    return [*_flow(program), *(f"{op.out}: {fault}" for op in program.ops for fault in _op(program, op))]


def _flow(program: Program) -> Iterator[str]:
    """Check that values are made once, before use, for some use, and that rows are selected once."""
    made: dict[str, Op] = {}
    selected: set[str] = set()
    used: set[str] = set()
    states: set[str] = set()
    for op in program.ops:
        names = inputs(op)
        used.update(names)
        yield from (f"{op.out}: reads {name}, which is not made before" for name in names if name not in made)
        if op.out in made:
            yield f"{op.out}: made twice"
        picked = {name in selected for name in names}
        if len(picked) > 1:
            yield f"{op.out}: mixes all rows with selected rows"
        if True in picked:
            selected.add(op.out)
            if isinstance(op, (Attention, Rope, PositionScale, SelectRows, Conv1d, SsmScan, GatedDelta)):
                yield f"{op.out}: needs all rows, but reads selected ones"
        if isinstance(op, SelectRows):
            selected.add(op.out)
        if isinstance(op, (Attention, Conv1d, SsmScan, GatedDelta)):
            borrows = isinstance(op, Attention) and op.k is None
            if borrows != (op.state in states):
                yield f"{op.out}: the state {op.state} " + (
                    "is not filled before" if borrows else "belongs to another op"
                )
            states.add(op.state)
        if isinstance(op, Attention) and op.k is not None:
            yield from _stored_keys(program.states.get(op.state), made.get(op.k), op)
        made[op.out] = op
    if not program.ops:
        yield "there are none"
        return
    logits = program.ops[-1].out
    yield from (f"{name}: never used" for name in made if name not in used and name != logits)
    declared = (*program.states, *program.recurrent)
    yield from (f"{name}: the state is never used" for name in declared if name not in states)
    yield from (f"{name}: two states have this name" for name in program.recurrent if name in program.states)
    if logits not in selected:
        yield f"{logits}: logits of every row, not only of those wanted"
    if program.embedding is not None and program.embedding not in selected:
        yield f"{program.embedding}: embeddings of every row, not only of those wanted"
    if program.generates and program.widths.get(logits) != program.n_vocab:
        yield f"{logits}: {program.widths.get(logits)} logits for {program.n_vocab} tokens"


def _stored_keys(state: KVState | None, maker: Op | None, op: Attention) -> Iterator[str]:
    """A state must know how its keys were rotated, or they could never be moved."""
    rope = maker.spec if isinstance(maker, Rope) else None
    if state is not None and state.rope != rope:
        yield f"{op.out}: the state {op.state} does not say how its keys are rotated"
    if state is not None and state.rope is not None and not state.movable:
        yield f"{op.out}: the keys of {op.state} are rotated, yet not movable"


def _op(program: Program, op: Op) -> Iterator[str]:
    """Check one op's numbers, widths and weights."""
    width = {name: program.widths.get(name, -1) for name in (op.out, *inputs(op))}
    out = width[op.out]
    if out < 1:
        yield f"has the width {out}"
    match op:
        case Embed():
            if op.by == "token":
                yield from _weight(program, op.weight, (out, program.n_vocab))
            elif (program.weights.get(op.weight) or (0,))[0] != out:
                yield f"embeds {op.by} rows as {out} values by {op.weight} of {program.weights.get(op.weight)}"
            elif op.by == "position" and any(state.movable for state in program.states.values()):
                yield "knows positions, so no layer's keys are movable"
            if op is program.ops[0] and out != program.n_embd:
                yield f"embeds {out} values, not {program.n_embd}"
        case MatMul():
            yield from _matmul(program, op, width[op.x], out)
        case RmsNorm():
            yield from _divides(op.size, width[op.x], "the norm's size")
            of_runs = (op.size, width[op.x] // max(1, op.size))
            shared = op.weight is None or program.weights.get(op.weight) != of_runs
            yield from _weight(program, op.weight, (op.size,) if shared else of_runs)
            yield from _eps(op.eps)
        case LayerNorm():
            yield from _divides(op.size, width[op.x], "the norm's size")
            of_runs = (op.size, width[op.x] // max(1, op.size))
            shared = op.weight is None or program.weights.get(op.weight) != of_runs
            for name in (op.weight, op.bias):
                yield from _weight(program, name, (op.size,) if shared else of_runs)
            yield from _eps(op.eps)
        case Sinkhorn():
            yield from _divides(op.size * op.size, width[op.x], "the matrix's size")
            yield from _eps(op.eps)
            if op.rounds < 1:
                yield f"has {op.rounds} rounds"
        case Softmax():
            yield from _divides(op.size, width[op.x], "the run's size")
        case L2Norm():
            yield from _divides(op.size, width[op.x], "the norm's size")
            yield from _eps(op.eps)
        case Slice():
            yield from _divides(op.size, width[op.x], "the run's size")
            taken = out * op.size // max(1, width[op.x])
            if op.start < 0 or op.start + taken > op.size or out * op.size != taken * width[op.x]:
                yield f"takes {out} of {width[op.x]} values, from {op.start} on in runs of {op.size}"
        case Rope():
            yield from _divides(op.head_dim, width[op.x], "the head's width")
            yield from _rope(op.spec, op.head_dim)
            yield from _weight(program, op.spec.factors, (len(op.spec.inv_freq),))
        case Attention():
            yield from _attention(program.states, op, width)
            yield from _weight(program, op.sinks, (op.n_head,))
        case PositionScale():
            if not math.isfinite(op.factor):
                yield f"the factor is {op.factor}"
            if op.period < 1 or not 0 <= op.offset < op.period:
                yield f"the period is {op.period}, the offset {op.offset}"
        case Softcap():
            if not (math.isfinite(op.cap) and op.cap > 0.0):
                yield f"the cap is {op.cap}"
        case Conv1d() | SsmScan() | GatedDelta():
            yield from check_recurrent(program, op, width)
    if isinstance(op, get_args(RowOp)):
        yield from check_row_op(program, op, width)
    if isinstance(op, (RmsNorm, LayerNorm, L2Norm, Rope, PositionScale, Softcap, Softmax, Sinkhorn, SelectRows, Add)):
        for name in inputs(op):
            if width[name] != out:
                yield f"is {out} wide, but reads {name} of {width[name]}"


def _attention(states: Mapping[str, KVState], op: Attention, width: Mapping[str, int]) -> Iterator[str]:
    state = states.get(op.state)
    if state is None:
        yield f"the state {op.state} is not declared"
        return
    if state.name != op.state:
        yield f"the state {op.state} calls itself {state.name}"
    if min(state.n_head_kv, state.head_dim, state.head_dim_v, op.n_head) < 1:
        yield "heads and their widths must be at least 1"
        return
    if state.window is not None and state.window < 1:
        yield f"the window is {state.window}"
    if state.chunked and state.window is None:
        yield "chunks need a window"
    if state.chunked and not state.causal:
        yield "chunks are seen from one side only"
    yield from _divides(state.n_head_kv, op.n_head, "the number of key heads")
    if state.rope is not None:
        yield from _rope(state.rope, state.head_dim)
    if (op.k is None) != (op.v is None):
        yield "has keys without values or values without keys"
    expected = [
        (op.q, op.n_head * state.head_dim),
        (op.k, state.n_head_kv * state.head_dim),
        (op.v, state.n_head_kv * state.head_dim_v),
        (op.out, op.n_head * state.head_dim_v),
    ]
    for name, n in expected:
        if name is not None and width[name] != n:
            yield f"{name} is {width[name]} wide, must be {n}"
    if not (math.isfinite(op.alibi) and op.alibi >= 0.0):
        yield f"the slopes' exponent is {op.alibi}"
    if not math.isfinite(op.scale):
        yield f"the scale is {op.scale}"
    if op.softcap is not None and not (math.isfinite(op.softcap) and op.softcap > 0.0):
        yield f"the cap is {op.softcap}"


def _matmul(program: Program, op: MatMul, n_in: int, n_out: int) -> Iterator[str]:
    shape = program.weights.get(op.weight, ())
    whole = (n_in, n_out)
    if len(shape) == 2 and shape[0] == n_in and 0 <= op.first <= shape[1] - n_out:
        whole = (n_in, shape[1])
    else:
        yield from _weight(program, op.weight, whole)
    yield from _weight(program, op.bias, whole[1:])
    yield from _weight(program, op.scale, (1,))


def _eps(eps: float) -> Iterator[str]:
    if not (math.isfinite(eps) and eps >= 0.0):
        yield f"eps is {eps}"


def _rope(spec: RopeSpec, head_dim: int) -> Iterator[str]:
    if not (spec.n_rot > 0 and 0 <= spec.offset <= head_dim - spec.n_rot):
        yield f"rotates {spec.n_rot} of {head_dim} values from {spec.offset} on"
    if not all(map(math.isfinite, (*spec.inv_freq, spec.magnitude))):
        yield "the rotation is not finite"


def _weight(program: Program, name: str | None, shape: tuple[int, ...]) -> Iterator[str]:
    if name is not None and program.weights.get(name) != shape:
        yield f"uses {name} as {shape}, but the program declares {program.weights.get(name)}"


def _divides(part: int, whole: int, what: str) -> Iterator[str]:
    if part < 1 or whole % part:
        yield f"{what}, {part}, does not divide {whole}"
