"""The table of architectures."""

from typing import Any

import pytest

from edgellm.architectures import Params, build, names, register, registry
from edgellm.errors import ArgumentError, ModelFormatError, UnsupportedModelError
from edgellm.program import ProgramBuilder, Value
from tests.support import conformance


@pytest.fixture
def scratch_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_TABLE", dict(registry._TABLE))


def test_the_built_in_families_are_there() -> None:
    assert {"llama", "mistral3", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "smollm3"} <= set(names())
    assert list(names()) == sorted(names())


def test_an_unknown_architecture_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(UnsupportedModelError, match=r"general\.architecture = 'xyzzy' is not supported$"):
        build({"general.architecture": "xyzzy"}, {})
    with pytest.raises(UnsupportedModelError, match=f"the nearest of the {len(names())} known ones is 'qwen3moe'"):
        build({"general.architecture": "qwen3-moe"}, {})


def test_a_dense_architecture_refuses_experts() -> None:
    recipe = conformance.recipe("qwen2-dense", lean=True)
    with pytest.raises(UnsupportedModelError, match=r"qwen2\.expert_count = 8"):
        build(recipe.metadata | {"qwen2.expert_count": 8}, recipe.tensors)


@pytest.mark.parametrize("value", [None, 3, ["llama"], b"llama"])
def test_a_file_must_say_its_architecture_as_a_string(value: Any) -> None:
    with pytest.raises(ModelFormatError, match=r"general\.architecture"):
        build({} if value is None else {"general.architecture": value}, {})


@pytest.mark.usefixtures("scratch_table")
def test_architectures_can_be_added_from_outside() -> None:
    @register("bigram", "bigram2")
    def bigram(p: Params, b: ProgramBuilder) -> Value:
        x = b.embed("token_embd.weight", p.n_embd, p.n_vocab)
        return b.matmul(b.select_rows(x), "output", p.n_vocab)

    for name in ("bigram", "bigram2"):
        metadata = {"general.architecture": name, f"{name}.embedding_length": 4, f"{name}.context_length": 9}
        program = build(metadata, {"token_embd.weight": (4, 11)})
        assert program.weights == {"token_embd.weight": (4, 11), "output.weight": (4, 11)}
        assert (program.architecture, program.n_vocab, program.n_ctx_train) == (name, 11, 9)


@pytest.mark.usefixtures("scratch_table")
def test_the_public_way_to_add_one() -> None:
    import edgellm

    edgellm.register_architecture("bigram", lambda p, b: b.matmul(b.select_rows(x(p, b)), "output", p.n_vocab))
    metadata = {"general.architecture": "bigram", "bigram.embedding_length": 4, "bigram.context_length": 9}
    assert build(metadata, {"token_embd.weight": (4, 11)}).n_vocab == 11
    with pytest.raises(UnsupportedModelError, match=r"bigram\.expert_count = 2"):
        build(metadata | {"bigram.expert_count": 2}, {"token_embd.weight": (4, 11)})
    with pytest.raises(ArgumentError, match="'bigram' is registered already"):
        edgellm.register_architecture("bigram", x, experts=True)


def x(p: Params, b: ProgramBuilder) -> Value:
    return b.embed("token_embd.weight", p.n_embd, p.n_vocab)


@pytest.mark.usefixtures("scratch_table")
def test_a_name_is_registered_once() -> None:
    with pytest.raises(ArgumentError, match="llama"):
        register("llama")(lambda p, b: Value("x", 1))
