"""What makes a list of ops a program: names, widths, heads, states and row counts that fit together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from edgellm.program.ops import (
    Add,
    Attention,
    Embed,
    Glu,
    KVState,
    MatMul,
    Op,
    PositionScale,
    RmsNorm,
    Rope,
    RopeSpec,
    Scale,
    SelectRows,
    Softcap,
    inputs,
)
from edgellm.program.program import Program


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
            if isinstance(op, (Attention, Rope, PositionScale, SelectRows)):
                yield f"{op.out}: needs all rows, but reads selected ones"
        if isinstance(op, SelectRows):
            selected.add(op.out)
        if isinstance(op, Attention):
            if op.state in states:
                yield f"{op.out}: the state {op.state} belongs to another op"
            states.add(op.state)
            yield from _stored_keys(program.states.get(op.state), made.get(op.k), op)
        made[op.out] = op
    if not program.ops:
        yield "there are none"
        return
    logits = program.ops[-1].out
    yield from (f"{name}: never used" for name in made if name not in used and name != logits)
    yield from (f"{name}: the state is never used" for name in program.states if name not in states)
    if logits not in selected:
        yield f"{logits}: logits of every row, not only of those wanted"
    if program.widths.get(logits) != program.n_vocab:
        yield f"{logits}: {program.widths.get(logits)} logits for {program.n_vocab} tokens"


def _stored_keys(state: KVState | None, maker: Op | None, op: Attention) -> Iterator[str]:
    """A state must know how its keys were rotated, or they could never be moved."""
    rope = maker.spec if isinstance(maker, Rope) else None
    if state is not None and state.rope != rope:
        yield f"{op.out}: the state {op.state} does not say how its keys are rotated"


def _op(program: Program, op: Op) -> Iterator[str]:
    """Check one op's numbers, widths and weights."""
    width = {name: program.widths.get(name, -1) for name in (op.out, *inputs(op))}
    out = width[op.out]
    if out < 1:
        yield f"has the width {out}"
    match op:
        case Embed():
            yield from _weight(program, op.weight, (out, program.n_vocab))
            if out != program.n_embd:
                yield f"embeds {out} values, not {program.n_embd}"
        case MatMul():
            yield from _weight(program, op.weight, (width[op.x], out))
            yield from _weight(program, op.bias, (out,))
            yield from _weight(program, op.scale, (1,))
        case RmsNorm():
            yield from _weight(program, op.weight, (op.size,))
            yield from _divides(op.size, width[op.x], "the norm's size")
            if not (math.isfinite(op.eps) and op.eps >= 0.0):
                yield f"eps is {op.eps}"
        case Rope():
            yield from _divides(op.head_dim, width[op.x], "the head's width")
            yield from _rope(op.spec, op.head_dim)
            yield from _weight(program, op.spec.factors, (len(op.spec.inv_freq),))
        case Attention():
            yield from _attention(program.states, op, width)
        case Scale() | PositionScale():
            if not math.isfinite(op.factor):
                yield f"the factor is {op.factor}"
            if isinstance(op, PositionScale) and op.period < 1:
                yield f"the period is {op.period}"
        case Softcap():
            if not (math.isfinite(op.cap) and op.cap > 0.0):
                yield f"the cap is {op.cap}"
    if isinstance(op, (RmsNorm, Rope, Scale, PositionScale, Softcap, SelectRows, Add, Glu)):
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
    yield from _divides(state.n_head_kv, op.n_head, "the number of key heads")
    if state.rope is not None:
        yield from _rope(state.rope, state.head_dim)
    expected = {
        op.q: op.n_head * state.head_dim,
        op.k: state.n_head_kv * state.head_dim,
        op.v: state.n_head_kv * state.head_dim_v,
        op.out: op.n_head * state.head_dim_v,
    }
    yield from (f"{name} is {width[name]} wide, must be {n}" for name, n in expected.items() if width[name] != n)
    if not math.isfinite(op.scale):
        yield f"the scale is {op.scale}"
    if op.softcap is not None and not (math.isfinite(op.softcap) and op.softcap > 0.0):
        yield f"the cap is {op.softcap}"


def _rope(spec: RopeSpec, head_dim: int) -> Iterator[str]:
    if not 0 < spec.n_rot <= head_dim:
        yield f"rotates {spec.n_rot} of {head_dim} values"
    if not all(map(math.isfinite, (*spec.inv_freq, spec.magnitude))):
        yield "the rotation is not finite"


def _weight(program: Program, name: str | None, shape: tuple[int, ...]) -> Iterator[str]:
    if name is not None and program.weights.get(name) != shape:
        yield f"uses {name} as {shape}, but the program declares {program.weights.get(name)}"


def _divides(part: int, whole: int, what: str) -> Iterator[str]:
    if part < 1 or whole % part:
        yield f"{what}, {part}, does not divide {whole}"
