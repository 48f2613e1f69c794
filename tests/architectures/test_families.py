"""What the families declare beyond what their golden logits show."""

from typing import Any

import pytest

from edgellm.architectures import build
from edgellm.program import Op, Program
from edgellm.program.ops import Attention, Glu, PositionScale, RmsNorm, Rope, Scale, SelectRows, Softcap
from tests.support import conformance


def program(name: str, n_layer: int = 2, **changes: Any) -> Program:
    """Build a lean recipe with keys changed and its layers repeated up to `n_layer`."""
    recipe = conformance.recipe(f"{name}-dense", lean=True)
    if n_layer != 2:
        recipe.metadata.pop(f"{name}.attention.sliding_window_pattern", None)
    for key, value in recipe.metadata.items():
        if key.startswith("xielu.") and isinstance(value, list):  # one number a layer
            recipe.metadata[key] = [value[0]] * n_layer
    metadata = recipe.metadata | {f"{name}.{key.replace('__', '.')}": value for key, value in changes.items()}
    layer = {k.removeprefix("blk.0."): shape for k, shape in recipe.tensors.items() if k.startswith("blk.0.")}
    layers = {f"blk.{i}.{k}": shape for i in range(n_layer) for k, shape in layer.items()}
    return build(metadata | {f"{name}.block_count": n_layer}, recipe.tensors | layers)


def of(kind: type[Op], model: Program) -> list[Any]:
    return [op for op in model.ops if isinstance(op, kind)]


@pytest.mark.parametrize("name", ["llama", "mistral3", "smollm3"])
def test_neighbours_are_pairs_in_the_llama_line(name: str) -> None:
    assert {op.spec.style for op in of(Rope, program(name))} == {"norm"}


@pytest.mark.parametrize("name", ["qwen2", "qwen3", "gemma", "gemma2", "gemma3"])
def test_halves_are_pairs_in_the_others(name: str) -> None:
    assert {op.spec.style for op in of(Rope, program(name))} == {"neox"}


def test_every_fourth_layer_of_smollm3_knows_no_positions() -> None:
    model = program("smollm3", 9)
    assert [model.states[f"blk.{i}.kv"].rope is None for i in range(9)] == [i in (3, 7) for i in range(9)]
    assert len(of(Rope, model)) == 14


def test_gemma3_has_one_layer_in_six_that_sees_everything_at_its_own_base() -> None:
    model = program("gemma3", 12, attention__sliding_window_pattern=6, rope__freq_base=1e6, rope__scaling__factor=8.0)
    assert [s.window for s in model.states.values()] == [32, 32, 32, 32, 32, None] * 2
    assert model.windows == (None, 32)
    for state in model.states.values():
        assert state.rope is not None
        slowest = 1e4 ** (-126 / 128) if state.window else 1e6 ** (-126 / 128) / 8.0
        assert state.rope.inv_freq[-1] == pytest.approx(slowest)
    assert not of(Softcap, model)


def test_gemma3_without_a_window_sees_everything() -> None:
    model = program("gemma3", attention__sliding_window=0, final_logit_softcapping=30.0)
    assert model.windows == (None,)
    assert [op.cap for op in of(Softcap, model)] == [30.0]


def test_gemma2_alternates_and_caps_by_default() -> None:
    model = program("gemma2", 4)
    assert [s.window for s in model.states.values()] == [32, None, 32, None]
    assert {op.softcap for op in of(Attention, model)} == {50.0}
    assert [op.cap for op in of(Softcap, model)] == [30.0]
    recipe = conformance.recipe("gemma2-dense", lean=True)
    del recipe.metadata["gemma2.attention.sliding_window"]
    assert build(recipe.metadata, recipe.tensors).windows == (None, 4096)


@pytest.mark.parametrize(("name", "n_layer"), [("gemma2", 46), ("gemma3", 62)])
def test_the_27b_gemmas_scale_by_the_width_of_the_model(name: str, n_layer: int) -> None:
    keys = {"attention__head_count": 4, "attention__head_count_kv": 4, "attention__key_length": 128}
    assert {op.scale for op in of(Attention, program(name, n_layer, **keys))} == {64**-0.5}
    assert {op.scale for op in of(Attention, program(name, n_layer - 1, **keys))} == {128**-0.5}
    assert {op.scale for op in of(Attention, program(name, n_layer, **keys, attention__scale=0.25))} == {0.25}


@pytest.mark.parametrize("name", ["gemma", "gemma2", "gemma3"])
def test_gemma_scales_its_embedding_and_gates_with_gelu(name: str) -> None:
    model = program(name)
    assert [op.factor for op in of(Scale, model)] == [16.0]
    assert {op.activation for op in of(Glu, model)} == {"gelu"}


def test_mistral3_sharpens_queries_only_where_the_file_asks() -> None:
    assert not of(PositionScale, program("mistral3"))
    model = program("mistral3", attention__temperature_scale=0.1, rope__scaling__original_context_length=64)
    assert [(op.factor, op.period) for op in of(PositionScale, model)] == [(0.1, 64)] * 2
    assert {op.q for op in of(Attention, model)} == {op.out for op in of(PositionScale, model)}
    assert of(PositionScale, program("mistral3", attention__temperature_scale=0.1))[0].period == 256


@pytest.mark.parametrize("name", ["qwen3", "gemma3"])
def test_heads_are_normalised_one_by_one(name: str) -> None:
    model = program(name)
    sizes = [
        op.size for op in of(RmsNorm, model) if op.weight and ("attn_q_norm" in op.weight or "attn_k_norm" in op.weight)
    ]
    head_dim = model.states["blk.0.kv"].head_dim
    assert sizes == [head_dim] * 4


@pytest.mark.parametrize("name", conformance.NAMES)
def test_rows_are_selected_right_after_the_last_attention(name: str) -> None:
    model = program(name.removesuffix("-dense"), 3)
    at = [i for i, op in enumerate(model.ops) if isinstance(op, SelectRows)]
    last = max(i for i, op in enumerate(model.ops) if isinstance(op, Attention))
    assert at == [last + 1, last + 2]
