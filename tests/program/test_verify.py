"""What `verify` accepts and how it says what it does not."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from edgellm import dtypes
from edgellm.architectures import build
from edgellm.errors import ModelFormatError
from edgellm.program import KVState, Op, Program, RopeSpec
from edgellm.program.ops import Add, Attention, MatMul, RmsNorm, Rope, Scale, SelectRows, Softcap
from edgellm.program.verify import verify
from tests.support import conformance

F32 = dtypes.by_name("F32")


@dataclass(frozen=True)
class Tensor:
    shape: tuple[int, ...]
    dtype: dtypes.DType = F32


def model(name: str = "llama-dense") -> tuple[Program, dict[str, Tensor]]:
    recipe = conformance.recipe(name)
    return build(recipe.metadata, recipe.tensors), {k: Tensor(shape) for k, shape in recipe.tensors.items()}


def complaint(program: Program, tensors: dict[str, Tensor]) -> str:
    with pytest.raises(ModelFormatError) as caught:
        verify(program, tensors)
    return str(caught.value)


@pytest.mark.parametrize("name", conformance.NAMES)
def test_sound_models_pass(name: str) -> None:
    verify(*model(name))


def test_everything_that_is_wrong_comes_in_one_error() -> None:
    program, tensors = model()
    del tensors["output_norm.weight"], tensors["blk.1.ffn_up.weight"]
    tensors["blk.0.attn_q.weight"] = Tensor((256, 128))
    tensors["blk.0.ffn_norm.weight"] = Tensor((256,), dtypes.by_name("Q8_0"))
    tensors["blk.0.wings.weight"] = Tensor((1,))
    text = complaint(program, tensors)
    assert "llama" in text
    assert "missing tensors (2): blk.1.ffn_up.weight 256×384, output_norm.weight 256;" in text
    assert "tensors of the wrong shape (1): blk.0.attn_q.weight is 256×128, must be 256×256" in text
    assert "tensors of the wrong type (1): blk.0.ffn_norm.weight is Q8_0, must be one of F32, F16, BF16" in text
    assert "unexpected tensors (1): blk.0.wings.weight" in text


def test_long_lists_are_cut() -> None:
    program, tensors = model()
    text = complaint(program, tensors | {f"extra.{i}": Tensor((1,)) for i in range(40)})
    assert "unexpected tensors (40): extra.0, " in text
    assert text.endswith("extra.9 and 30 more")


def test_an_empty_file_lacks_every_tensor() -> None:
    program, _ = model()
    assert f"missing tensors ({len(program.weights)})" in complaint(program, {})


def test_trailing_axes_of_one_do_not_matter() -> None:
    program, tensors = model()
    verify(program, {name: Tensor((*t.shape, 1, 1)) for name, t in tensors.items()})
    assert "wrong shape" in complaint(program, tensors | {"output_norm.weight": Tensor((1, 256))})


def test_matrices_may_have_any_type_and_vectors_only_float_types() -> None:
    program, tensors = model()
    q4 = dtypes.by_name("Q4_0")
    verify(program, {k: Tensor(t.shape, q4) if len(t.shape) > 1 else t for k, t in tensors.items()})
    verify(program, {k: Tensor(t.shape, dtypes.by_name("F16")) for k, t in tensors.items()})
    used = {name for name in program.weights if len(program.weights[name]) == 1}
    text = complaint(program, {k: Tensor(t.shape, dtypes.by_name("I32")) for k, t in tensors.items()})
    assert f"tensors of the wrong type ({len(used)})" in text
    assert any("bias" in n for n in used)
    assert {"rope_freqs.weight", "blk.0.attn_q.scale"} <= used


def test_ignored_tensors_are_accepted_by_pattern() -> None:
    program, tensors = model("qwen3-dense")
    assert any(name.startswith("cls.") for name in tensors)
    assert any(name.endswith(".input_scale") for name in tensors)
    assert "cls.output.weight" in complaint(replace(program, ignored=("*.input_scale",)), tensors)


def swap(kind: type, change: Callable[[Any], Op]) -> Callable[[Program], Program]:
    """Return a change of the first op of `kind`."""

    def apply(program: Program) -> Program:
        i = next(i for i, op in enumerate(program.ops) if isinstance(op, kind))
        return replace(program, ops=(*program.ops[:i], change(program.ops[i]), *program.ops[i + 1 :]))

    return apply


def state(**changes: Any) -> Callable[[Program], Program]:
    def apply(program: Program) -> Program:
        return replace(program, states={**program.states, "blk.0.kv": replace(program.states["blk.0.kv"], **changes)})

    return apply


def spec(**changes: Any) -> Callable[[Program], Program]:
    return swap(Rope, lambda op: replace(op, spec=replace(op.spec, **changes)))


BROKEN: dict[str, tuple[Callable[[Program], Program], str]] = {
    "no ops": (lambda p: replace(p, ops=()), "there are none"),
    "an unknown input": (swap(Add, lambda op: replace(op, a="nothing")), "reads nothing, which is not made before"),
    "an input made later": (lambda p: replace(p, ops=(p.ops[1], p.ops[0], *p.ops[2:])), "not made before"),
    "a value made twice": (lambda p: replace(p, ops=(p.ops[0], *p.ops)), "made twice"),
    "a value nobody reads": (
        lambda p: replace(
            p, ops=(*p.ops[:1], Scale("lost", p.ops[0].out, 2.0), *p.ops[1:]), widths={**p.widths, "lost": 256}
        ),
        "lost: never used",
    ),
    "a width that does not fit": (lambda p: replace(p, widths={**p.widths, p.ops[1].out: 128}), "is 128 wide, but"),
    "no width": (lambda p: replace(p, widths={p.ops[0].out: 256}), "has the width -1"),
    "the wrong embedding": (lambda p: replace(p, n_embd=128), "embeds 256 values, not 128"),
    "the wrong vocabulary": (lambda p: replace(p, n_vocab=64), "128 logits for 64 tokens"),
    "an undeclared weight": (swap(MatMul, lambda op: replace(op, weight="w")), "uses w as (256, 256), but"),
    "an undeclared bias": (swap(MatMul, lambda op: replace(op, bias="b")), "uses b as (256,), but"),
    "an undeclared scale": (swap(MatMul, lambda op: replace(op, scale="s")), "uses s as (1,), but"),
    "a norm that does not divide": (swap(RmsNorm, lambda op: replace(op, size=100)), "100, does not divide 256"),
    "a norm of nothing": (swap(RmsNorm, lambda op: replace(op, size=0)), "0, does not divide 256"),
    "a bad epsilon": (swap(RmsNorm, lambda op: replace(op, eps=float("nan"))), "eps is nan"),
    "a head that does not divide": (swap(Rope, lambda op: replace(op, head_dim=96)), "96, does not divide 256"),
    "a rotation wider than the head": (spec(inv_freq=(1.0,) * 65, factors=None), "rotates 130 of 128 values"),
    "an empty rotation": (spec(inv_freq=(), factors=None), "rotates 0 of 128 values"),
    "an infinite rotation": (spec(inv_freq=(float("inf"),) * 64), "the rotation is not finite"),
    "keys of unknown rotation": (state(rope=None), "does not say how its keys are rotated"),
    "keys of another rotation": (state(rope=RopeSpec((1.0,), "norm")), "does not say how its keys are rotated"),
    "an unknown state": (swap(Attention, lambda op: replace(op, state="s")), "the state s is not declared"),
    "a misnamed state": (state(name="else"), "the state blk.0.kv calls itself else"),
    "an unused state": (
        lambda p: replace(p, states={**p.states, "more": KVState("more", 1, 8, 8)}),
        "more: the state is never used",
    ),
    "a shared state": (
        swap(Attention, lambda op: replace(op, state="blk.1.kv")),
        "the state blk.1.kv belongs to another op",
    ),
    "no heads": (swap(Attention, lambda op: replace(op, n_head=0)), "must be at least 1"),
    "heads that do not divide": (swap(Attention, lambda op: replace(op, n_head=3)), "2, does not divide 3"),
    "heads of the wrong width": (state(head_dim=64), "is 256 wide, must be 128"),
    "an empty window": (state(window=0), "the window is 0"),
    "a negative cap": (swap(Attention, lambda op: replace(op, softcap=-1.0)), "the cap is -1.0"),
    "an infinite scale": (swap(Attention, lambda op: replace(op, scale=float("inf"))), "the scale is inf"),
    "logits of every row": (
        lambda p: replace(p, ops=tuple(Scale(o.out, o.x, 1.0) if isinstance(o, SelectRows) else o for o in p.ops)),
        "logits of every row",
    ),
    "all rows mixed with some": (
        swap(SelectRows, lambda op: Scale(op.out, op.x, 1.0)),
        "mixes all rows with selected rows",
    ),
    "rows selected twice": (
        lambda p: replace(p, ops=(*p.ops, SelectRows("again", p.ops[-1].out)), widths={**p.widths, "again": p.n_vocab}),
        "again: needs all rows",
    ),
    "a cap of zero": (
        lambda p: replace(p, ops=(*p.ops, Softcap("z", p.ops[-1].out, 0.0)), widths={**p.widths, "z": p.n_vocab}),
        "z: the cap is 0.0",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_ops_that_do_not_fit_together_are_refused(name: str) -> None:
    program, tensors = model()
    change, words = BROKEN[name]
    text = complaint(change(program), tensors)
    assert "inconsistent ops" in text
    assert words in text
