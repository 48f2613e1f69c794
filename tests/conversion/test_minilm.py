"""all-MiniLM-L6-v2, converted and embedded, against its own weights in an independent forward pass."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import edgellm
from tests.support.minilm import Forward, folder

TEXTS = [
    "This is an example sentence",
    "Each sentence is converted",
    "Édouard's café costs €5 — très cher! 東京へ行く。",
    "",
    "The quick brown fox jumps over the lazy dog. " * 12,
]


@pytest.fixture(scope="module")
def source() -> Path:
    return folder()


@pytest.fixture(scope="module")
def ids(source: Path) -> list[list[int]]:
    """What the model's own tokenizer makes of the texts."""
    from tokenizers import Tokenizer

    own = Tokenizer.from_file(str(source / "tokenizer.json"))
    own.no_padding()
    own.no_truncation()
    return [own.encode(text).ids for text in TEXTS]


@pytest.mark.parametrize(("kind", "bound"), [("f32", 1e-6), ("f16", 3e-4), ("q8_0", 2e-2)])
def test_vectors_are_those_of_the_published_model(
    source: Path, ids: list[list[int]], tmp_path: Path, kind: edgellm.conversion.folder.TensorType, bound: float
) -> None:
    path = edgellm.convert(source, tmp_path / "minilm.gguf", type=kind)
    with edgellm.Model(path, kv_type="f32") as model:
        assert (model.info.architecture, model.info.pooling, model.info.n_ctx) == ("bert", "mean", 512)
        assert [model.tokenize(text) for text in TEXTS] == ids
        found = model.embed(TEXTS)
        np.testing.assert_array_equal(found, np.concatenate([model.embed(text) for text in TEXTS]))
    expected = np.array([Forward(source / "model.safetensors", exact_gelu=False).embed(i) for i in ids])
    np.testing.assert_allclose(found, expected, rtol=0, atol=bound)


def test_the_form_of_gelu_hardly_matters(source: Path, ids: list[list[int]]) -> None:
    # GGUF files do not say which form a model was trained with; all that read them use the tanh form.
    forms = [Forward(source / "model.safetensors", exact_gelu=exact) for exact in (True, False)]
    for tokens in ids:
        exact, approximate = (form.embed(tokens) for form in forms)
        assert exact @ approximate > 0.99999


def test_near_texts_have_near_vectors(source: Path, tmp_path: Path) -> None:
    path = edgellm.convert(source, tmp_path / "minilm.gguf", type="q8_0")
    with edgellm.Model(path) as model:
        cat, kitten, bank = model.embed(["A cat sits on the mat.", "A kitten rests on a rug.", "Interest rates rose."])
    assert cat @ kitten > 0.5 > 0.2 > cat @ bank
