"""Which ops the kernels have: a program with any other is refused, never run wrongly."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from edgellm.program import KVState, Program, RopeSpec
from edgellm.program.ops import (
    Add,
    Attention,
    Embed,
    Glu,
    MatMul,
    Op,
    PositionScale,
    RmsNorm,
    Rope,
    Scale,
    SelectRows,
    Softcap,
    Xielu,
)

_FIELDS: dict[type, str] = {
    Embed: "out weight",
    MatMul: "out x weight bias scale scaled_bias",
    RmsNorm: "out x weight eps size",
    Rope: "out x head_dim spec",
    Attention: "out q k v state n_head scale softcap",
    Add: "out a b",
    Scale: "out x factor",
    PositionScale: "out x factor period",
    Glu: "out gate up activation",
    Softcap: "out x cap",
    Xielu: "out x alpha_p alpha_n beta eps",
    SelectRows: "out x",
    KVState: "name n_head_kv head_dim head_dim_v window rope movable",
    RopeSpec: "inv_freq style factors magnitude",
}
"""What kernels heed of each op, state and rope; everything else must have its default."""


def lacking(program: Program) -> list[str]:
    """Return in words what the kernels lack to run a program, each thing once."""
    found = [reason for op in program.ops for reason in _op(program, op)]
    for state in program.states.values():
        found += _fields(state)
        if state.rope is not None:
            found += _fields(state.rope)
    return sorted(set(found))


def _op(program: Program, op: Op) -> Iterator[str]:
    name = type(op).__name__
    if type(op) not in _FIELDS:
        yield name
        return
    yield from _fields(op)
    width = program.widths[op.out]
    match op:
        case MatMul(weight=weight) if program.weights[weight][1] != width:
            yield f"{name} with a part of a matrix"
        case RmsNorm(weight=str() as weight, size=size) if program.weights[weight] != (size,):
            yield f"{name} with a weight of several rows"
        case Rope(spec=spec):
            yield from _fields(spec)
        case Attention(k=k, v=v) if k is None or v is None:
            yield f"{name} to another layer's keys"
        case Add(a=a, b=b) if not program.widths[a] == program.widths[b] == width:
            yield f"{name} of different widths"
        case Glu(gate=gate, up=up, activation=activation):
            if not program.widths[gate] == program.widths[up] == width:
                yield f"{name} of different widths"
            if activation not in ("silu", "gelu"):
                yield f"{name} with {activation}"


def _fields(value: Any) -> Iterator[str]:
    """Yield the fields that differ from their default and that no kernel heeds."""
    known = _FIELDS[type(value)].split()
    for field in dataclasses.fields(value):
        if field.name not in known and getattr(value, field.name) != field.default:
            yield f"{type(value).__name__} with {field.name}"
