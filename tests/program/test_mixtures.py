"""Ops of mixtures and fused matrices: what does not fit together is said, and nothing is overwritten too early."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from edgellm.program import Program, ProgramBuilder
from edgellm.program.check import check_ops
from edgellm.program.experts import MatMulExperts, Mix, Route
from edgellm.program.ops import Attention, Concat, Dot, Glu, MatMul, Mul, Scale
from edgellm.program.plan import plan
from tests.support.moe import mixture


@pytest.fixture(scope="module")
def program() -> Program:
    return mixture("F32")[0]


def changed(program: Program, kind: type, **fields: Any) -> list[str]:
    """Return what is wrong once the first op of a kind has other fields."""
    ops = list(program.ops)
    at = next(i for i, op in enumerate(ops) if isinstance(op, kind))
    ops[at] = replace(ops[at], **fields)
    return check_ops(replace(program, ops=tuple(ops)))


def test_the_mixture_itself_is_consistent(program: Program) -> None:
    assert check_ops(program) == []


@pytest.mark.parametrize(
    ("kind", "fields", "words"),
    [
        (Route, {"n_used": 7}, "for 7 of 6 experts"),
        (Route, {"n_groups": 4}, "of 4 groups of 6 experts"),
        (Route, {"scoring": "loud"}, "the scoring is 'loud'"),
        (Route, {"scale": float("nan")}, "the scale is nan"),
        (MatMulExperts, {"first": 1000}, "from row 1000 of 512"),
        (MatMulExperts, {"n_slots": 5}, "for 5 slots"),
        (MatMulExperts, {"routes": None}, "has 6 matrices for 3 slots"),
        (MatMulExperts, {"scale": "norm.bias"}, "uses norm.bias as (6,)"),
        (Mix, {"size": 100}, "runs of 100"),
        (Concat, {"runs": 3}, "in 3 runs"),
        (MatMul, {"first": 400}, "uses qkv.weight as (256, 256)"),
        (Glu, {"activation": "loud"}, "the activation is 'loud'"),
        (Glu, {"limit": -1.0}, "the limit is -1.0"),
        (Attention, {"sinks": "norm.bias"}, "uses norm.bias as (4,)"),
        (Attention, {"alibi": -1.0}, "the slopes' exponent is -1.0"),
        (Attention, {"v": None}, "keys without values"),
    ],
)
def test_what_does_not_fit_is_said(program: Program, kind: type, fields: dict[str, Any], words: str) -> None:
    assert any(words in fault for fault in changed(program, kind, **fields))


def test_keys_are_borrowed_only_from_a_layer_before(program: Program) -> None:
    borrowing = [op for op in program.ops if isinstance(op, Attention) and op.k is None]
    assert [op.state for op in borrowing] == ["near"]
    early = changed(program, Attention, k=None, v=None)
    assert any("the state near is not filled before" in fault for fault in early)


Make = Callable[[ProgramBuilder, Any, Any], Any]


@pytest.mark.parametrize(
    ("kind", "make"),
    [(Mul, lambda b, wide, narrow: b.mul(wide, narrow)), (Glu, lambda b, wide, narrow: b.glu(narrow, wide, "silu"))],
)
def test_a_narrow_input_is_not_overwritten_while_it_is_read(kind: type, make: Make) -> None:
    b = ProgramBuilder("narrow", {})
    wide, narrow = b.embed("wide", 64, 64), b.embed("narrow", 8, 64)
    made = make(b, wide, narrow)
    program = b.build(b.matmul(b.select_rows(made), "head", 64), n_embd=64, n_ctx_train=9)
    assert check_ops(program) == []
    slots = plan(program).slots
    assert isinstance(program.ops[2], kind)
    assert slots[made.name] != slots[narrow.name]
    assert slots[made.name] == slots[wide.name]


def test_widths_of_dots_and_factors_are_checked() -> None:
    b = ProgramBuilder("sums", {"w": (3,)})
    x = b.embed("x", 64, 64)
    sums = b.dot(x, x, 8)
    scaled = b.scale(b.mul(x, sums), weight="w")
    program = b.build(b.matmul(b.select_rows(scaled), "head", 64), n_embd=64, n_ctx_train=9)
    assert any("w has 3 values, which do not divide 64" in fault for fault in check_ops(program))
    assert any("sums of 7" in fault for fault in changed(program, Dot, size=7))
    assert any("the factor is inf" in fault for fault in changed(program, Scale, factor=float("inf")))
