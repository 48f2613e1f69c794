"""`Model.embed`: one flat vector a text, pooled as the file says, whatever else is in the batch."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import edgellm
from edgellm import Model
from edgellm.errors import (
    ArgumentError,
    ClosedError,
    ContextOverflowError,
    NumericalError,
    UnsupportedModelError,
    VocabularyError,
)
from tests.support import conformance
from tests.support.tiny import BOS, EOS, vocabulary, write_tiny

ENCODERS = Path(__file__).parent / "data" / "encoders"
TEXTS = [[1, 2, 3], list(range(40)), [7], [9, 8, 7, 6, 5, 4] * 8]


def write_encoder(path: Path, name: str, **changes: Any) -> Path:
    """Write an encoder; keywords replace metadata keys under its prefix, with ``__`` for the dots, None removes one."""
    recipe = conformance.recipe(name, folder=ENCODERS)
    for key, value in changes.items():
        full = f"{recipe.metadata['general.architecture']}.{key.replace('__', '.')}"
        recipe.metadata[full] = value
        if value is None:
            del recipe.metadata[full]
    conformance.write_gguf(recipe, path)
    return path


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A decoder with a vocabulary and no pooling metadata, whose texts get BOS and EOS."""
    vocab = vocabulary(add_bos_token=True, add_eos_token=True)
    return write_tiny(tmp_path_factory.mktemp("embed") / "decoder.gguf", vocab=vocab)


@pytest.fixture(scope="module")
def model(decoder: Path) -> Iterator[Model]:
    with Model(decoder, backend="reference", kv_type="f32") as m:
        yield m


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    with Model(write_encoder(tmp_path_factory.mktemp("embed") / "bert.gguf", "bert"), kv_type="f32") as m:
        yield m


def unit(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return x / np.linalg.norm(x.astype(np.float64), axis=-1, keepdims=True)


# What comes back


def test_there_is_one_flat_vector_per_text(model: Model) -> None:
    one = model.embed("Hello world!")
    assert (one.shape, one.dtype) == ((1, model.info.n_embd), np.float32)
    assert model.embed(["Hello world!"]).shape == one.shape
    assert model.embed(["Hello", "world", "!"]).shape == (3, model.info.n_embd)
    assert model.embed([]).shape == (0, model.info.n_embd)
    np.testing.assert_array_equal(model.embed(["Hello world!"]), one)


def test_vectors_have_length_one_unless_asked_otherwise(model: Model) -> None:
    plain = model.embed(["hello", "world"], normalize=False)
    assert not np.allclose(np.linalg.norm(plain, axis=1), 1.0)
    np.testing.assert_allclose(np.linalg.norm(model.embed(["hello", "world"]), axis=1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(model.embed(["hello", "world"]), unit(plain), rtol=1e-5)


def test_a_decoder_without_pooling_metadata_gives_the_mean(model: Model) -> None:
    assert model.info.pooling is None
    rows = model.embed_tokens("hello")
    np.testing.assert_allclose(model.embed("hello", normalize=False)[0], rows.mean(axis=0), rtol=1e-5, atol=1e-6)


def test_tokens_at_both_ends_take_part(model: Model) -> None:
    ids = model.tokenize("hello")
    assert (ids[0], ids[-1]) == (BOS, EOS)
    assert len(model.embed_tokens("hello")) == len(ids)
    np.testing.assert_array_equal(model.embed([ids]), model.embed("hello"))
    # A text that spells </s> is a text: its letters count, and the final token is still the model's own.
    spelled = model.tokenize("hello</s>")
    assert spelled[-1] == EOS
    assert len(spelled) > len(ids) + 1
    np.testing.assert_array_equal(model.embed("hello</s>"), model.embed([spelled]))


@pytest.mark.parametrize(("number", "rows"), [(1, slice(None)), (2, slice(0, 1)), (3, slice(-1, None))])
@pytest.mark.parametrize("backend", ["reference", "native"])
def test_pooling_is_as_the_file_says(tmp_path: Path, decoder: Path, number: int, rows: slice, backend: Any) -> None:
    vocab = vocabulary(add_eos_token=True)
    path = write_tiny(tmp_path / "pooled.gguf", vocab=vocab, llama__pooling_type=number)
    with Model(path, backend=backend, kv_type="f32") as m:
        each = m.embed_tokens("hello world")
        found = m.embed("hello world", normalize=False)[0]
    np.testing.assert_allclose(found, each[rows].mean(axis=0), rtol=1e-5, atol=1e-6)


def test_pooling_can_be_chosen(model: Model) -> None:
    rows = model.embed_tokens("hello")
    np.testing.assert_array_equal(model.embed("hello", False, pooling="last")[0], rows[-1])
    np.testing.assert_array_equal(model.embed("hello", False, pooling="cls")[0], rows[0])


def test_what_a_decoder_gives_is_what_its_logits_are_made_of(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "ids.gguf")
    recipe = conformance.recipe("llama-dense", lean=True)
    ids = list(range(30))
    with Model(path, backend="reference", kv_type="f32") as m:
        name = "output.weight" if "output.weight" in recipe.tensors else "token_embd.weight"
        made = m.embed_tokens(ids).astype(np.float64) @ recipe.array(name).T.astype(np.float64)
        np.testing.assert_allclose(made, m.logits(ids), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["bert", "nomic-bert", "jina-bert-v2", "modern-bert", "gemma-embedding"])
def test_a_batch_gives_the_bits_of_single_texts(tmp_path: Path, name: str) -> None:
    with Model(write_encoder(tmp_path / "m.gguf", name), n_batch=32) as m:
        together = m.embed(TEXTS * 12)
        alone = np.concatenate([m.embed([ids]) for ids in TEXTS])
        np.testing.assert_array_equal(together, np.tile(alone, (12, 1)))


def test_a_decoders_batch_gives_the_bits_of_single_texts(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "windows.gguf", family="gemma3", gemma3__attention__sliding_window=24)
    texts = [*TEXTS, list(range(100)) * 2]
    with Model(path, n_batch=48) as m, Model(path) as large:
        m.generate(list(range(100)), max_tokens=2)  # What generations leave in the cache plays no part.
        together = m.embed(texts)
        np.testing.assert_array_equal(together, np.concatenate([m.embed([ids]) for ids in texts]))
        np.testing.assert_array_equal(together, large.embed(texts))


def test_embedding_and_generating_share_the_engine(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "m.gguf")
    with Model(path) as m:
        vectors = m.embed(TEXTS)
        ids = m.generate([1, 2, 3], max_tokens=30, temperature=0.0)
        ids.text if m.info.has_tokenizer else list(ids)
        expected = ids.token_ids
        found: list[Any] = []

        def embed() -> None:
            found.append(m.embed(TEXTS * 3))

        workers = [threading.Thread(target=embed) for _ in range(4)]
        for worker in workers:
            worker.start()
        generations = [m.generate([1, 2, 3], max_tokens=30, temperature=0.0) for _ in range(4)]
        for worker in workers:
            worker.join()
        for generation in generations:
            list(generation)
            assert generation.token_ids == expected
        for each in found:
            np.testing.assert_array_equal(each, np.tile(vectors, (3, 1)))


def test_an_encoders_step_is_as_long_as_its_context(bert: Model) -> None:
    assert bert.info.n_batch >= bert.info.n_ctx == 64
    with Model(bert.info.path, n_batch=16) as small:
        assert small.info.n_batch == 64
        np.testing.assert_allclose(small.embed(TEXTS), bert.embed(TEXTS), atol=1e-3)
    with Model(bert.info.path, n_ctx=40) as short:
        assert short.info.n_ctx == 40
        assert short.embed([list(range(40))]).shape == (1, 64)


def test_a_reranker_returns_scores(tmp_path: Path) -> None:
    recipe = conformance.recipe("bert", folder=ENCODERS)
    recipe.metadata["bert.pooling_type"] = 4
    recipe.tensors.update({"cls.weight": (64, 64), "cls.bias": (64,), "cls.output.weight": (64, 1)})
    conformance.write_gguf(recipe, tmp_path / "rank.gguf")
    with Model(tmp_path / "rank.gguf") as m:
        scores = m.embed(TEXTS)
        assert scores.shape == (len(TEXTS), m.info.n_embd_out) == (len(TEXTS), 1)
        assert not np.allclose(np.abs(scores), 1.0)
        with pytest.raises(ArgumentError, match="scores of whole texts"):
            m.embed(TEXTS, pooling="mean")


# What is refused


def test_an_encoder_does_not_generate(bert: Model) -> None:
    for call in (
        lambda: bert.generate([1]),
        lambda: bert.chat([{"role": "user", "content": "x"}]),
        lambda: bert.logits([1]),
    ):
        with pytest.raises(UnsupportedModelError, match=r"encoder \(bert\).*use embed"):
            call()
    assert not bert.info.generates


@pytest.mark.parametrize("overflow", ["error", "stop", "shift"])
def test_a_text_longer_than_the_context_is_refused(tmp_path: Path, decoder: Path, overflow: Any) -> None:
    for path in (write_encoder(tmp_path / "bert.gguf", "bert"), decoder):
        with Model(path, n_ctx=64, overflow=overflow) as m:
            with pytest.raises(ContextOverflowError, match=r"texts\[1\] has 65 tokens, the context holds 64"):
                m.embed([[1], [1] * 65])
            assert m.embed([[1] * 64]).shape[0] == 1


def test_values_that_make_no_sense_are_refused(model: Model, bert: Model) -> None:
    for texts in (b"hello", {"a": 1}, 5, None):
        with pytest.raises(ArgumentError, match="texts must be a text or a sequence of texts"):
            model.embed(texts)
    with pytest.raises(ArgumentError, match=r"texts\[1\] must be text or a sequence of token ids, not 7"):
        model.embed(["a", 7])
    with pytest.raises(ArgumentError, match=r"texts\[1\] is empty"):
        model.embed(["a", []])
    with pytest.raises(VocabularyError, match=r"texts\[0\]: token 128"):
        bert.embed([[128]])
    with pytest.raises(ArgumentError, match="pooling must be one of 'mean', 'cls', 'last', not 'max'"):
        model.embed("a", pooling="max")  # type: ignore[arg-type]
    assert model.embed("a").shape[0] == 1


def test_a_file_that_asks_for_no_pooling_gets_none(tmp_path: Path) -> None:
    with Model(write_encoder(tmp_path / "m.gguf", "bert", pooling_type=0)) as m:
        assert m.embed_tokens([1, 2, 3]).shape == (3, 64)
        with pytest.raises(ArgumentError, match=r"vector per token.*embed_tokens"):
            m.embed([[1, 2, 3]])
        assert m.embed([[1, 2, 3]], pooling="mean").shape == (1, 64)


def test_an_architecture_without_embeddings_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from edgellm.architectures import registry

    monkeypatch.setattr(registry, "_TABLE", dict(registry._TABLE))
    edgellm.register_architecture(
        "bare",
        lambda p, b: b.matmul(b.select_rows(b.embed("token_embd.weight", p.n_embd, p.n_vocab)), "output", p.n_vocab),
    )
    recipe = conformance.Recipe(
        {"general.architecture": "bare", "bare.embedding_length": 32, "bare.context_length": 16},
        dict.fromkeys(("general.architecture", "bare.embedding_length", "bare.context_length"), "UINT32"),
        {"token_embd.weight": (32, 20), "output.weight": (32, 20)},
    )
    conformance.write_gguf(recipe, tmp_path / "bare.gguf")
    with (
        Model(tmp_path / "bare.gguf") as m,
        pytest.raises(UnsupportedModelError, match="bare models declare no embeddings"),
    ):
        m.embed([[1]])


def test_numbers_that_are_not_finite_are_an_error(tmp_path: Path) -> None:
    recipe = conformance.recipe("bert", folder=ENCODERS)
    recipe.gain["token_embd_norm.bias"] = float("nan")
    conformance.write_gguf(recipe, tmp_path / "nan.gguf")
    with Model(tmp_path / "nan.gguf") as m, pytest.raises(NumericalError, match="not finite"):
        m.embed([[1, 2]])


def test_a_closed_model_embeds_no_more(tmp_path: Path) -> None:
    m = Model(write_encoder(tmp_path / "m.gguf", "bert"))
    m.embed([[1]])
    m.close()
    with pytest.raises(ClosedError):
        m.embed([[1]])


# Models that see both sides and score tokens


@pytest.mark.parametrize("name", ["dream-dense", "llada-moe-moe"])
def test_a_diffusion_model_scores_and_embeds_but_does_not_continue(tmp_path: Path, name: str) -> None:
    conformance.need_shared()
    recipe = conformance.recipe(name, folder=conformance.SHARED)
    conformance.write_gguf(recipe, tmp_path / "m.gguf")
    with Model(tmp_path / "m.gguf", kv_type="f32", n_batch=16, n_ctx=64) as m:
        assert m.info.n_batch == 64
        logits = m.logits(conformance.tokens().tolist())
        assert conformance.nmse(logits, conformance.golden(name, conformance.SHARED)) < 1e-8
        np.testing.assert_array_equal(m.embed(TEXTS), np.concatenate([m.embed([ids]) for ids in TEXTS]))
        with pytest.raises(UnsupportedModelError, match="is a diffusion model"):
            m.generate([1, 2])
