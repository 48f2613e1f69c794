"""Text and ids in, tokens out."""

from __future__ import annotations

import numpy as np
import pytest

import edgellm
from tests.model.conftest import CHAT, ids_of
from tests.support.tiny import BOS, EOS, vocabulary


def test_the_empty_prompt_runs_from_bos_or_is_refused(files, model):
    generation = model.generate("", max_tokens=2)
    assert len(ids_of(generation)) >= 1
    assert generation.usage.prompt_tokens == 1
    with edgellm.Model(files["plain"], backend="reference") as plain:
        with pytest.raises(edgellm.ArgumentError, match="empty"):
            plain.generate("")
        with pytest.raises(edgellm.ArgumentError, match="empty"):
            plain.generate([])
        assert len(ids_of(plain.generate("hello", max_tokens=2))) >= 1
    for empty in (model.generate, model.logits):
        with pytest.raises(edgellm.ArgumentError, match="empty"):
            empty([])
    with pytest.raises(edgellm.ArgumentError, match="messages"):
        model.chat([])


def test_a_raw_prompt_gets_one_bos_and_ids_get_none(model):
    plain = model.tokenize("hello", add_special=False)
    assert model.generate("hello", max_tokens=0).usage.prompt_tokens == 1 + len(plain)
    assert model.generate(plain, max_tokens=0).usage.prompt_tokens == len(plain)
    assert model.generate("<s>hello", max_tokens=0, parse_special=True).usage.prompt_tokens == 1 + len(plain)
    spelled = model.tokenize("<s>hello", add_special=False)
    assert len(spelled) > 1 + len(plain)
    assert model.generate("<s>hello", max_tokens=0).usage.prompt_tokens == 1 + len(spelled)


def test_a_model_without_a_vocabulary_takes_and_gives_ids(ids_model):
    generation = ids_model.generate([1, 2, 3], max_tokens=4)
    assert list(generation) == []
    assert generation.text == ""
    assert len(generation.token_ids) == 4
    assert not ids_model.info.has_tokenizer
    for call in (
        lambda: ids_model.generate("text"),
        lambda: ids_model.chat(CHAT),
        lambda: ids_model.generate([1], stop="x"),
        lambda: ids_model.tokenize("text"),
        lambda: ids_model.detokenize([1]),
        lambda: ids_model.tokenizer,
        lambda: ids_model.chat_template,
    ):
        with pytest.raises(edgellm.VocabularyError, match="no vocabulary"):
            call()


def test_the_tokenizer_works_without_weights(files, tmp_path):
    from edgellm.gguf import write

    write(tmp_path / "vocab.gguf", {"general.architecture": "llama", **vocabulary()})
    tokenizer = edgellm.Tokenizer(tmp_path / "vocab.gguf")
    ids = tokenizer.encode("hello world")
    assert ids[0] == tokenizer.bos_id == BOS
    assert tokenizer.decode(ids) == "hello world"
    assert tokenizer.encode("hello</s>", add_special=False, parse_special=True)[-1] == EOS
    with pytest.raises(edgellm.VocabularyError):
        edgellm.Tokenizer(files["ids"])
    with pytest.raises(edgellm.ModelNotFoundError):
        edgellm.Tokenizer(tmp_path / "none.gguf")


def test_tokenize_and_detokenize(model):
    ids = model.tokenize("hello world")
    assert ids[0] == BOS
    assert model.detokenize(ids) == "hello world"
    assert model.detokenize(np.array(ids)) == "hello world"
    assert model.tokenizer.encode("hello world") == ids
    with pytest.raises(edgellm.VocabularyError):
        model.detokenize([10**6])
