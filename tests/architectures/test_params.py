"""Metadata is checked before anything is computed with it."""

import math
import re
from typing import Any

import pytest

from edgellm.architectures import Params, build
from edgellm.errors import EdgeLLMError, ModelFormatError, UnsupportedModelError
from edgellm.program.ops import Attention, MatMul, Xielu
from tests.support import conformance


def changed(name: str = "llama-dense", **changes: Any) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """Return a lean recipe's metadata with some keys set, or taken out (None)."""
    recipe = conformance.recipe(name, lean=True)
    prefix = recipe.metadata["general.architecture"]
    metadata = recipe.metadata | {f"{prefix}.{key.replace('__', '.')}": value for key, value in changes.items()}
    return {key: value for key, value in metadata.items() if value is not None}, recipe.tensors


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("attention__head_count", 0, "= 0: must be from 1"),
        ("attention__head_count", -1, "= -1: must be from 1"),
        ("attention__head_count", 7, "= 7: does not divide llama.embedding_length = 256"),
        ("attention__head_count", 2**40, "must be from 1"),
        ("attention__head_count", "2", "= '2': must be one whole number"),
        ("attention__head_count", 2.0, "= 2.0: must be one whole number"),
        ("attention__head_count", True, "= True: must be one whole number"),
        ("attention__head_count", None, "llama.attention.head_count is missing"),
        ("attention__head_count", [2], "has 1 values, but the model has 2 layers"),
        ("attention__head_count", [2, 0], "head_count[1] = 0: must be from 1"),
        ("attention__head_count", [2, "x"], "head_count[1] = 'x': must be one whole number"),
        ("attention__head_count", [], "has 0 values"),
        ("attention__head_count_kv", 0, "= 0: must be from 1"),
        ("attention__head_count_kv", 3, "= 3: does not divide 2 heads"),
        ("attention__head_count_kv", [2, 4], "= 4: does not divide 2 heads (layer 1)"),
        ("attention__key_length", 0, "= 0: must be from 1"),
        ("attention__key_length", 10**9, "wider than every tensor of the file (384)"),
        ("attention__value_length", [128, 128], "= an array of 2: must be one whole number"),
        ("block_count", 0, "= 0: must be from 1"),
        ("block_count", 10**9, "the file has only 64 tensors"),
        ("block_count", [2], "= an array of 1: must be one whole number"),
        ("embedding_length", 0, "= 0: must be from 1"),
        ("embedding_length", None, "llama.embedding_length is missing"),
        ("context_length", 0, "= 0: must be from 1"),
        ("feed_forward_length", [384, 0], "feed_forward_length[1] = 0: must be from 1"),
        ("feed_forward_length", None, "llama.feed_forward_length is missing"),
        ("attention__layer_norm_rms_epsilon", math.nan, "= nan: must be a finite number"),
        ("attention__layer_norm_rms_epsilon", -1.0, "= -1.0: must be a finite number"),
        ("attention__layer_norm_rms_epsilon", "small", "= 'small': must be a number"),
        ("attention__causal", 1, "= 1: must be a boolean"),
        ("expert_count", [8], "= an array of 1: must be one whole number"),
        ("rope__scaling__type", 3, "= 3: must be a string"),
        ("rope__freq_base", 0.0, "= 0.0: must be greater than 1"),
        ("rope__freq_base", math.inf, "= inf: must be a finite number"),
        ("rope__dimension_count", 130, "= 130: must be even and at most the head's width, 128"),
        ("rope__dimension_count", 63, "= 63: must be even"),
        ("rope__scaling__factor", -2.0, "= -2.0: must be a finite number of at least 0"),
    ],
)
def test_nonsense_is_refused_by_name(key: str, value: Any, words: str) -> None:
    with pytest.raises(ModelFormatError) as caught:
        build(*changed(**{key: value}))
    assert key.replace("__", ".") in str(caught.value)
    assert words in str(caught.value)


def test_long_values_are_cut_in_messages() -> None:
    with pytest.raises(ModelFormatError) as caught:
        build(*changed(block_count="x" * 10_000))
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("shape", [None, (), (256,), (256, 128, 2)])
def test_a_file_without_an_embedding_matrix_has_no_vocabulary(shape: tuple[int, ...] | None) -> None:
    metadata, tensors = changed()
    tensors = {name: s for name, s in tensors.items() if name != "token_embd.weight"}
    with pytest.raises(ModelFormatError, match=r"token_embd\.weight"):
        build(metadata, tensors if shape is None else tensors | {"token_embd.weight": shape})


def test_numbers_may_differ_from_layer_to_layer() -> None:
    program = build(
        *changed(
            attention__head_count=[2, 4],
            attention__head_count_kv=[1, 2],
            attention__key_length=64,
            attention__value_length=32,
            feed_forward_length=(100, 200),
        )
    )
    assert [op.n_head for op in program.ops if isinstance(op, Attention)] == [2, 4]
    assert [s.n_head_kv for s in program.states.values()] == [1, 2]
    assert {(s.head_dim, s.head_dim_v) for s in program.states.values()} == {(64, 32)}
    assert program.weights["blk.0.attn_q.weight"] == (256, 128)
    assert program.weights["blk.1.attn_v.weight"] == (256, 64)
    assert program.weights["blk.1.attn_output.weight"] == (128, 256)
    assert program.weights["blk.0.ffn_up.weight"] == (256, 100)
    assert program.weights["blk.1.ffn_down.weight"] == (200, 256)


def test_the_defaults_need_the_fewest_keys() -> None:
    program = build(*changed())
    attention = next(op for op in program.ops if isinstance(op, Attention))
    assert attention.scale == pytest.approx(128**-0.5, rel=1e-15)
    assert program.states["blk.1.kv"].n_head_kv == 2
    assert program.n_ctx_train == 256
    assert (program.n_vocab, program.n_embd) == (128, 256)


def test_the_output_matrix_is_the_embedding_where_there_is_no_other() -> None:
    metadata, tensors = changed()
    last = build(metadata, tensors).ops[-1]
    tied = build(metadata, {n: s for n, s in tensors.items() if n != "output.weight"}).ops[-1]
    assert isinstance(last, MatMul)
    assert isinstance(tied, MatMul)
    assert (last.weight, tied.weight) == ("output.weight", "token_embd.weight")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"attention__causal": False}, "llama.attention.causal = false"),
        ({"rope__scaling__type": "longrope"}, "llama.rope.scaling.type = 'longrope'"),
        ({"rope__scaling__type": "dynamic"}, "llama.rope.scaling.type = 'dynamic'"),
    ],
)
def test_what_is_not_there_is_refused_by_key_and_value(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        build(*changed(**changes))
    assert words in str(caught.value)


def test_experts_without_a_router_are_refused() -> None:
    with pytest.raises(ModelFormatError, match=r"llama\.expert_count = 8: the file has no router"):
        build(*changed(expert_count=8))


def windows(pattern: Any = None, size: int | None = 32, n_layer: int = 7, period: int = 6) -> tuple[int | None, ...]:
    metadata = {
        "x.block_count": n_layer,
        "x.attention.sliding_window": size,
        "x.attention.sliding_window_pattern": pattern,
    }
    tensors = {f"t{i}": (1,) for i in range(n_layer)}
    return Params("x", {k: v for k, v in metadata.items() if v is not None}, tensors).windows(period, default=8)


def test_windows_follow_the_period_of_the_family_the_file_or_a_list() -> None:
    assert windows() == (32, 32, 32, 32, 32, None, 32)
    assert windows(pattern=2) == (32, None, 32, None, 32, None, 32)
    assert windows(pattern=1) == (None,) * 7
    assert windows(pattern=0) == (32,) * 7
    assert windows(pattern=[1, 0, 0, 1, 0, 0, 0]) == (32, None, None, 32, None, None, None)
    assert windows(pattern=[False, True] * 3 + [False]) == (None, 32, None, 32, None, 32, None)
    assert windows(size=None) == (8, 8, 8, 8, 8, None, 8)
    assert windows(size=0) == (None,) * 7


@pytest.mark.parametrize("pattern", [[1, 0], ["a"] * 7, [2.5] * 7, -1, "2"])
def test_nonsense_window_patterns_are_refused(pattern: Any) -> None:
    with pytest.raises(ModelFormatError, match="sliding_window_pattern"):
        windows(pattern=pattern)


ODD: tuple[Any, ...] = (
    *(0, 1, -1, 3, 2**31, 2**64 - 1, -(2**63), 0.0, -1.0, 1e-300, 1e300, math.nan, math.inf, -math.inf),
    *(
        True,
        False,
        "",
        "yarn",
        "\ud800",
        [],
        [0, 0],
        [1, 2],
        [2, 2, 2],
        ["a", "b"],
        [[1], [2]],
        [math.nan, 1.0],
        [True],
    ),
)


class Listening(dict[str, Any]):
    """Metadata that remembers which keys were asked for."""

    def __init__(self, items: dict[str, Any]) -> None:
        super().__init__(items)
        self.asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self.asked.add(str(key))
        return super().__contains__(key)


@pytest.mark.parametrize("scaling", ["linear", "yarn"])
@pytest.mark.parametrize("name", conformance.NAMES)
def test_no_value_of_any_key_gives_an_untyped_error(name: str, scaling: str) -> None:
    recipe = conformance.recipe(name)
    prefix = recipe.metadata["general.architecture"]
    metadata = Listening(
        recipe.metadata | {f"{prefix}.rope.scaling.type": scaling, f"{prefix}.rope.scaling.factor": 2.0}
    )
    build(metadata, recipe.tensors)
    built, refused = 0, []
    for key in metadata.asked:
        for value in ODD:
            try:
                build({**metadata, key: value}, recipe.tensors)
                built += 1
            except EdgeLLMError as error:
                refused.append(str(error))
    assert len(metadata.asked) > 15
    assert built > 40
    assert len(refused) > 200
    assert max(map(len, refused)) < 300


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("alpha_p", None, "xielu.alpha_p is missing"),
        ("alpha_n", [0.5], "xielu.alpha_n has 1 values, but the model has 2 layers"),
        ("beta", [], "xielu.beta has 0 values"),
        ("beta", [0.5, "x"], "xielu.beta[1] = 'x': must be a finite number"),
        ("eps", [0.5, math.nan], "xielu.eps[1] = nan: must be a finite number"),
        ("eps", math.inf, "xielu.eps = inf: must be a finite number"),
        ("eps", True, "xielu.eps = True: must be a finite number"),
        ("eps", "12", "xielu.eps = '12': must be a finite number"),
    ],
)
def test_numbers_of_xielu(key: str, value: Any, words: str) -> None:
    metadata, tensors = changed("apertus-dense")
    with pytest.raises(ModelFormatError, match=re.escape(words)):
        build({k: v for k, v in (metadata | {f"xielu.{key}": value}).items() if v is not None}, tensors)


def test_one_number_of_xielu_holds_for_every_layer() -> None:
    metadata, tensors = changed("apertus-dense")
    program = build(metadata | {"xielu.eps": -0.5, "xielu.alpha_p": 0.0}, tensors)
    found = [(op.eps, op.alpha_p) for op in program.ops if isinstance(op, Xielu)]
    assert found == [(-0.5, math.log(2.0))] * 2
