"""The buffer plan, checked by running it on slots that remember what was written to them."""

import random
from collections.abc import Iterator
from itertools import groupby

import pytest

from edgellm.architectures import build
from edgellm.program import Op, Program, ProgramBuilder
from edgellm.program.ops import (
    Add,
    Attention,
    Embed,
    Glu,
    MatMul,
    PositionScale,
    RmsNorm,
    Rope,
    RopeSpec,
    Scale,
    SelectRows,
    Softcap,
    Xielu,
    inputs,
)
from edgellm.program.plan import Plan, plan
from tests.support import conformance

ELEMENTWISE = (Add, Glu, PositionScale, RmsNorm, Rope, Scale, Softcap, Xielu)


def program_of(ops: list[Op], widths: dict[str, int]) -> Program:
    return Program("test", widths[ops[-1].out], 1, 1, tuple(ops), widths, {}, {})


def random_program(rng: random.Random, n_ops: int) -> Program:
    """Ops over random earlier values, of random widths, with runs of MatMuls and values used long after."""
    ops: list[Op] = [Embed("v0", "w")]
    widths = {"v0": rng.choice((8, 64))}
    while len(ops) < n_ops:
        out = f"v{len(ops)}"
        x = rng.choice(list(widths)[-4:])
        twin = rng.choice([name for name in widths if widths[name] == widths[x]])
        kind = rng.choice((MatMul, MatMul, Add, Glu, RmsNorm, Rope, Scale, Softcap, Xielu, SelectRows, Attention))
        made: dict[type, Op] = {
            MatMul: MatMul(out, ops[-1].x if isinstance(ops[-1], MatMul) and rng.random() < 0.5 else x, "w"),
            Add: Add(out, x, twin),
            Glu: Glu(out, x, twin, "silu"),
            RmsNorm: RmsNorm(out, x, None, 1e-5, 1),
            Rope: Rope(out, x, 2, RopeSpec((1.0,), "norm")),
            Scale: Scale(out, x, 2.0),
            Softcap: Softcap(out, x, 2.0),
            Xielu: Xielu(out, x, 1.0, 1.0, 0.5, 0.0),
            SelectRows: SelectRows(out, x),
            Attention: Attention(out, x, twin, rng.choice(list(widths)), "s", 1, 1.0),
        }
        ops.append(made[kind])
        widths[out] = rng.choice((8, 16, 64, 200)) if kind in (MatMul, Attention) else widths[x]
    return program_of(ops, widths)


def groups(program: Program) -> Iterator[list[Op]]:
    """Ops that a backend may run at the same time."""
    for key, ops in groupby(program.ops, lambda op: op.x if isinstance(op, MatMul) else id(op)):
        if isinstance(key, str):
            yield list(ops)
        else:
            yield from ([op] for op in ops)


def faults(program: Program, slots: dict[str, int | None]) -> list[str]:
    """Run the program on slots that remember whose value they hold."""
    found = []
    holds: dict[int | None, str] = {}
    for ops in groups(program):
        read = [(op.out, name) for op in ops for name in inputs(op)]
        found += [f"{out} reads {name}, overwritten" for out, name in read if holds.get(slots[name]) != name]
        written = [slots[op.out] for op in ops]
        if len(set(written)) != len(written):
            found.append(f"{[op.out for op in ops]} are written at once")
        if not isinstance(ops[0], ELEMENTWISE):
            found += [f"{out} overwrites {name}" for out, name in read if slots[name] in written]
        holds.update({slots[op.out]: op.out for op in ops})
    return found


def total(program: Program, slots: dict[str, int | None]) -> int:
    width: dict[int, int] = {}
    for name, slot in slots.items():
        if slot is not None:
            width[slot] = max(width.get(slot, 0), program.widths[name])
    return sum(width.values())


def partitions(names: list[str]) -> Iterator[dict[str, int]]:
    """Yield every way to put names into slots."""
    if not names:
        yield {}
        return
    for rest in partitions(names[:-1]):
        for slot in range(len(set(rest.values())) + 1):
            yield {**rest, names[-1]: slot}


def check(program: Program) -> Plan:
    result = plan(program)
    assert list(result.slots) == [op.out for op in program.ops]
    assert result.slots[program.ops[-1].out] is None
    assert faults(program, dict(result.slots)) == []
    for name, slot in result.slots.items():
        assert slot is None or program.widths[name] <= result.widths[slot]
    assert total(program, dict(result.slots)) == sum(result.widths)
    return result


@pytest.mark.parametrize("seed", range(300))
def test_no_value_is_overwritten_while_it_is_needed(seed: int) -> None:
    rng = random.Random(seed)
    check(random_program(rng, rng.randint(2, 40)))


def test_small_programs_get_by_with_little_more_than_the_least_possible() -> None:
    used = least = 0
    for seed in range(40):
        program = random_program(random.Random(1000 + seed), 7)
        result = check(program)
        fixed = {name: None for name, slot in result.slots.items() if slot is None}
        names = [name for name in result.slots if name not in fixed]
        best = min(
            total(program, slots) for part in partitions(names) if not faults(program, slots := {**part, **fixed})
        )
        assert best <= sum(result.widths) <= 1.5 * best
        used, least = used + sum(result.widths), least + best
    assert used <= 1.05 * least


@pytest.mark.parametrize("name", conformance.NAMES)
def test_every_family_needs_five_or_six_slots_and_none_as_wide_as_the_vocabulary(name: str) -> None:
    recipe = conformance.recipe(name)
    tensors = {**recipe.tensors, "token_embd.weight": (256, 5000), "output.weight": (256, 5000)}
    result = check(build(recipe.metadata, tensors))
    assert len(result.widths) <= 6
    assert max(result.widths) == 384


def test_the_number_of_layers_does_not_matter() -> None:
    def widths(n_layer: int) -> tuple[int, ...]:
        b = ProgramBuilder("test", {})
        x = b.embed("e", 64, 10)
        for i in range(n_layer):
            h = b.rms_norm(x, f"n{i}.weight", 1e-5)
            h = b.glu(b.matmul(h, f"g{i}", 256), b.matmul(h, f"u{i}", 256), "silu")
            x = b.add(x, b.matmul(h, f"d{i}", 64))
        return check(b.build(b.matmul(b.select_rows(x), "o", 10), n_embd=64, n_ctx_train=8)).widths

    assert sum(widths(1)) == sum(widths(50)) == 64 + 64 + 256 + 256


def test_an_elementwise_op_works_in_place_only_on_an_input_nobody_reads_later() -> None:
    widths = dict.fromkeys("abcdef", 8)
    ops: list[Op] = [
        Embed("a", "w"),
        Scale("b", "a", 2.0),
        Scale("c", "b", 3.0),
        Add("d", "c", "b"),
        MatMul("e", "d", "w"),
    ]
    slots = check(program_of(ops, widths)).slots
    assert slots["b"] == slots["a"]
    assert slots["c"] != slots["b"]
    assert slots["d"] in (slots["b"], slots["c"])


def test_selecting_rows_is_never_done_in_place() -> None:
    ops: list[Op] = [Embed("a", "w"), SelectRows("b", "a"), MatMul("c", "b", "w")]
    slots = check(program_of(ops, dict.fromkeys("abc", 8))).slots
    assert slots["a"] != slots["b"]


def test_matmuls_of_one_value_may_run_at_the_same_time() -> None:
    # h dies as soon as the first of the three could be done, were they done one after the other.
    ops: list[Op] = [
        Embed("x", "w"),
        MatMul("h", "x", "w"),
        MatMul("q", "h", "w"),
        MatMul("k", "h", "w"),
        MatMul("v", "h", "w"),
        Attention("o", "q", "k", "v", "s", 1, 1.0),
        MatMul("y", "o", "w"),
    ]
    slots = check(program_of(ops, dict.fromkeys("xhqkvoy", 8))).slots
    assert len({slots[name] for name in "hqkv"}) == 4
    assert slots["x"] in {slots[name] for name in "qkv"}


def test_capped_logits_are_computed_where_they_are_wanted() -> None:
    ops: list[Op] = [Embed("x", "w"), SelectRows("r", "x"), MatMul("y", "r", "w"), Softcap("z", "y", 30.0)]
    result = check(program_of(ops, {"x": 8, "r": 8, "y": 5000, "z": 5000}))
    assert result.slots["y"] is None
    assert result.widths == (8, 8)


def test_planning_a_very_deep_program_is_not_quadratic() -> None:
    ops: list[Op] = [Embed("v0", "w")]
    ops += [MatMul(f"v{i}", f"v{i - 1}", "w") for i in range(1, 50_000)]
    assert sum(check(program_of(ops, dict.fromkeys((op.out for op in ops), 8))).widths) == 16
