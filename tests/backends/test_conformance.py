"""Tiny models of every family against logits measured with llama.cpp at float32."""

from pathlib import Path

import pytest

from edgellm.architectures import build
from edgellm.backends import get_backend
from edgellm.backends.base import Backend, Weight
from edgellm.gguf import open_model
from edgellm.program.verify import verify
from tests.support import conformance
from tests.support.run import options_for, run_tokens


def test_all_families_are_covered() -> None:
    families = ("apertus", "gemma", "gemma2", "gemma3", "llama", "mistral3", "qwen2", "qwen3", "smollm3")
    assert tuple(f"{name}-dense" for name in families) == conformance.NAMES


@pytest.mark.parametrize("chunk", [None, 1], ids=["batch", "one by one"])
@pytest.mark.parametrize("lean", [False, True], ids=["full", "lean"])
@pytest.mark.parametrize("name", conformance.NAMES)
def test_logits_match_llama_cpp(name: str, lean: bool, chunk: int | None, backend: Backend) -> None:
    model = conformance.recipe(name, lean=lean)
    weights = model.weights()
    program = build(model.metadata, model.tensors)
    verify(program, weights)
    executable = backend.compile(program, weights, options_for(program, conformance.N_TOKENS))
    logits = run_tokens(executable, program, conformance.tokens(), chunk)
    executable.close()
    assert logits.shape == (conformance.N_TOKENS, program.n_vocab)
    assert conformance.nmse(logits, conformance.golden(name)) < 1e-8


@pytest.mark.parametrize("name", conformance.NAMES)
def test_a_file_gives_the_logits_of_its_weights(name: str, tmp_path: Path) -> None:
    model = conformance.recipe(name)
    conformance.write_gguf(model, tmp_path / "model.gguf")
    with open_model(tmp_path / "model.gguf") as file:
        tensors = file.tensors
        program = build(file.metadata, {n: t.shape for n, t in tensors.items()})
        verify(program, tensors)
        weights = {n: Weight(t.dtype, t.shape, file.data(n)) for n, t in tensors.items()}
        executable = get_backend("reference").compile(program, weights, options_for(program, conformance.N_TOKENS))
        logits = run_tokens(executable, program, conformance.tokens())
        executable.close()
        del weights
    assert conformance.nmse(logits, conformance.golden(name)) < 1e-8
