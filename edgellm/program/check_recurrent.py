"""What makes the recurrent ops of a program fit together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from edgellm.program.program import Program
from edgellm.program.recurrent import Conv1d, GatedDelta, RecurrentOp, SsmScan


def check_recurrent(program: Program, op: RecurrentOp, width: Mapping[str, int]) -> Iterator[str]:
    """Yield what is wrong with one op; `width` has those of its inputs and its output."""
    state = program.recurrent.get(op.state)
    if state is None:
        yield f"the state {op.state} is not declared"
        return
    if state.name != op.state:
        yield f"the state {op.state} calls itself {state.name}"
    if len(state.shape) != (2 if isinstance(op, Conv1d) else 3) or min(state.shape) < 1:
        yield f"the state {op.state} has the shape {state.shape}"
        return
    match op:
        case Conv1d():
            before, channels = state.shape
            yield from _widths(width, {op.x: channels, op.out: channels})
            yield from _elements(program, op.weight, (before + 1) * channels)
            if op.bias is not None:
                yield from _elements(program, op.bias, channels)
        case SsmScan():
            yield from _scan(program, op, state.shape, width)
        case GatedDelta():
            yield from _delta(program, op, state.shape, width)


def _scan(program: Program, op: SsmScan, shape: tuple[int, ...], width: Mapping[str, int]) -> Iterator[str]:
    n_head, head_dim, d_state = shape
    yield from _groups(n_head, op.n_group)
    inner, shared = n_head * head_dim, op.n_group * d_state
    yield from _widths(width, {op.x: inner, op.dt: n_head, op.b: shared, op.c: shared, op.out: inner})
    yield from _elements(program, op.a, n_head, n_head * d_state)
    for weight in (op.d, op.bias):
        if weight is not None:
            yield from _elements(program, weight, n_head)


def _delta(program: Program, op: GatedDelta, shape: tuple[int, ...], width: Mapping[str, int]) -> Iterator[str]:
    n_head, head_dim_v, head_dim = shape
    yield from _groups(n_head, op.n_head_k)
    keys, values = op.n_head_k * head_dim, n_head * head_dim_v
    yield from _widths(width, {op.q: keys, op.k: keys, op.v: values, op.beta: n_head, op.out: values})
    if width[op.g] not in (n_head, n_head * head_dim):
        yield f"{op.g} is {width[op.g]} wide, must be {n_head} or {n_head * head_dim}"
    if (op.a is None) != (op.bias is None):
        yield "has one of a and bias"
    if op.a is not None and op.bias is not None:
        yield from _elements(program, op.a, n_head)
        yield from _elements(program, op.bias, width[op.g])
    if not math.isfinite(op.scale):
        yield f"the scale is {op.scale}"


def _groups(n_head: int, n_group: int) -> Iterator[str]:
    if n_group < 1 or n_head % n_group:
        yield f"{n_group} groups do not divide {n_head} heads"


def _widths(width: Mapping[str, int], expected: Mapping[str, int]) -> Iterator[str]:
    yield from (f"{name} is {width[name]} wide, must be {n}" for name, n in expected.items() if width[name] != n)


def _elements(program: Program, weight: str, *allowed: int) -> Iterator[str]:
    shape = program.weights.get(weight)
    if shape is None or math.prod(shape) not in allowed:
        yield f"uses {weight} with {' or '.join(map(str, allowed))} values, but the program declares {shape}"
