"""Unigram vocabularies: SentencePiece's own ids, its table of replacements, byte tokens."""

from __future__ import annotations

import io
import struct
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from edgellm.errors import ModelFormatError, VocabularyError
from edgellm.tokenizer import load_tokenizer
from tests.support.vocabularies import USER_DEFINED

_WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "lazy", "dog", "hello", "world", "naïve", "日本語", "テスト"]
_CHARS = "abcdefghijklmnopqrstuvwxyzABC  ①ﬁ½éя日本\u3000\t\n．e\u0301"


@pytest.fixture(scope="module", params=["nmt_nfkc", "identity"])
def original(request):
    """A model that SentencePiece trained, with white space and characters cleaned up or not."""
    sentences = [" ".join(_WORDS[(i * k) % len(_WORDS)] for k in range(2, 12)) for i in range(1, 400)]
    out = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=out,
        vocab_size=60,
        hard_vocab_limit=False,
        model_type="unigram",
        normalization_rule_name=request.param,
        remove_extra_whitespaces=request.param != "identity",
        minloglevel=2,
    )
    processor = SentencePieceProcessor()
    processor.LoadFromSerializedProto(out.getvalue())
    return processor, _charsmap(out.getvalue()), request.param != "identity"


def _charsmap(model):
    """Field 2 of field 3, of a serialized model."""

    def fields(data):
        place = 0
        while place < len(data):
            key, place = _varint(data, place)
            if key & 7 == 2:
                size, place = _varint(data, place)
            else:
                size = {5: 4, 1: 8, 0: _varint(data, place)[1] - place}[key & 7]
            yield key >> 3, data[place : place + size]
            place += size

    return dict(fields(dict(fields(model))[3])).get(2, b"")


def _varint(data, place):
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, place


def _metadata(original, **changes):
    processor, charsmap, merges_spaces = original
    ids = range(processor.GetPieceSize())
    kinds = [(processor.IsUnknown(i) and 2) or (processor.IsControl(i) and 3) or 1 for i in ids]
    return {
        "tokenizer.ggml.model": "t5",
        "tokenizer.ggml.tokens": [processor.IdToPiece(i) for i in ids],
        "tokenizer.ggml.scores": [processor.GetScore(i) for i in ids],
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.unknown_token_id": processor.unk_id(),
        "tokenizer.ggml.bos_token_id": processor.bos_id(),
        "tokenizer.ggml.eos_token_id": processor.eos_id(),
        "tokenizer.ggml.precompiled_charsmap": np.frombuffer(charsmap, np.int8),
        "tokenizer.ggml.add_space_prefix": True,
        "tokenizer.ggml.remove_extra_whitespaces": merges_spaces,
        **{f"tokenizer.ggml.{key}": value for key, value in changes.items()},
    }


@pytest.fixture(scope="module")
def pair(original):
    return load_tokenizer(_metadata(original)), original[0]


@settings(deadline=None)
@given(st.text(st.sampled_from(_CHARS)) | st.lists(st.sampled_from([*_WORDS, " ", "ﬁ"])).map("".join) | st.text())
def test_ids_are_sentence_pieces_own(pair, text):
    tokenizer, processor = pair
    assert tokenizer.encode(text, add_special=False) == processor.EncodeAsIds(text)


def test_arrays_of_bytes_of_any_type(original):
    expected = load_tokenizer(_metadata(original)).encode("ﬁ ① one")
    for dtype in (np.uint8, np.int8, np.int32):
        changed = np.frombuffer(original[1], np.uint8).astype(dtype)
        assert load_tokenizer(_metadata(original, precompiled_charsmap=changed)).encode("ﬁ ① one") == expected


@pytest.mark.parametrize("value", ["abc", [1.5], [300], [[1]], [-129]])
def test_a_table_that_is_no_array_of_bytes(original, value):
    with pytest.raises(ModelFormatError, match="precompiled_charsmap must be an array of bytes"):
        load_tokenizer(_metadata(original, precompiled_charsmap=value))


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 1000, 1028, -1])
def test_a_table_that_was_cut(original, cut):
    charsmap = original[1]
    if charsmap:
        for bad in (charsmap[:cut], b"\xff\xff\xff\xff" + charsmap[4:], struct.pack("<I", 1 << 20) + charsmap[4:]):
            with pytest.raises(ModelFormatError, match="precompiled_charsmap is not a table"):
                load_tokenizer(_metadata(original, precompiled_charsmap=np.frombuffer(bad, np.uint8)))


@settings(deadline=None)
@given(st.data())
def test_a_damaged_table_is_refused_or_harmless(original, data):
    if charsmap := original[1]:
        damaged = bytearray(charsmap)
        for _ in range(data.draw(st.integers(1, 4))):
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
        with suppress(ModelFormatError):
            tokenizer = load_tokenizer(_metadata(original, precompiled_charsmap=np.frombuffer(damaged, np.uint8)))
            assert max(tokenizer.encode(_CHARS)) < tokenizer.n_vocab


@pytest.mark.parametrize("unit", [1 << 31 - 1, 0x7FFFFF00 ^ 1 << 9, 1 << 20, 255 << 10 | 1 << 9])
def test_a_table_that_leads_outside(unigram_metadata, unit):
    trie = struct.pack("<256I", *[unit] * 256)
    with pytest.raises(ModelFormatError, match="leads outside of itself"):
        load_tokenizer(unigram_metadata(precompiled_charsmap=list(struct.pack("<I", 1024) + trie + b"x\0")))


def test_texts_of_a_table_that_lie_outside(unigram_metadata):
    trie = struct.pack("<256I", *[1 << 8] * 255, 1 << 31 | 2)
    with pytest.raises(ModelFormatError, match="leads outside of itself"):
        load_tokenizer(unigram_metadata(precompiled_charsmap=list(struct.pack("<I", 1024) + trie + b"x\0")))


def test_the_most_probable_pieces(unigram, spell):
    assert spell(unigram, unigram.encode("hello hell user", add_special=False)) == ["▁hello", "▁", "hell", "▁user"]
    assert unigram.encode("hello")[-1] == unigram.eos_id == 1
    assert not unigram.add_bos


def test_unknown_characters_become_byte_tokens(unigram, spell):
    ids = unigram.encode(" hell🦙.", add_special=False)
    assert spell(unigram, ids)[-5:] == ["<0xF0>", "<0x9F>", "<0xA6>", "<0x99>", "<0x2E>"]


def test_without_byte_tokens_a_run_is_one_unknown(unigram_metadata):
    metadata = unigram_metadata()
    for key in ("tokens", "token_type", "scores"):
        del metadata[f"tokenizer.ggml.{key}"][3 : 3 + 256]
    tokenizer = load_tokenizer(metadata)
    assert tokenizer.encode("hello🦙🦙", add_special=False)[1:] == [2]
    metadata["tokenizer.ggml.token_type"][2] = 1
    del metadata["tokenizer.ggml.unknown_token_id"]
    metadata["tokenizer.ggml.tokens"][2] = "unk"
    with pytest.raises(VocabularyError, match="🦙"):
        load_tokenizer(metadata).encode("hello🦙")


def test_missing_scores_are_refused(unigram_metadata):
    with pytest.raises(ModelFormatError, match=r"tokenizer\.ggml\.scores is missing"):
        load_tokenizer(unigram_metadata(scores=None))


def test_user_defined_tokens_stand_alone(unigram_metadata, spell):
    tokenizer = load_tokenizer(unigram_metadata(added=[("<doc>", USER_DEFINED)]))
    ids = tokenizer.encode("hello<doc>user", add_special=False)
    assert spell(tokenizer, ids) == ["▁hello", "<doc>", "▁user"]
    assert tokenizer.decode(ids) == "hello<doc>user"
