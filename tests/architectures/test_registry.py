"""The table of architectures."""

from typing import Any

import pytest

from edgellm.architectures import Params, build, names, register, registry
from edgellm.errors import ArgumentError, ModelFormatError, UnsupportedModelError
from edgellm.program import ProgramBuilder, Value


@pytest.fixture
def scratch_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_TABLE", dict(registry._TABLE))


def test_the_built_in_families_are_there() -> None:
    assert {"llama", "mistral3", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "smollm3"} <= set(names())
    assert list(names()) == sorted(names())


def test_an_unknown_architecture_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        build({"general.architecture": "megatron"}, {})
    assert "'megatron'" in str(caught.value)
    assert all(name in str(caught.value) for name in names())


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
def test_a_name_is_registered_once() -> None:
    with pytest.raises(ArgumentError, match="llama"):
        register("llama")(lambda p, b: Value("x", 1))
