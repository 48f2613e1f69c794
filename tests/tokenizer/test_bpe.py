"""Byte-level BPE vocabularies: merges, fallbacks, markers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgellm.errors import VocabularyError
from edgellm.tokenizer import load_tokenizer

NORMAL = 1


def test_merges_in_their_order(bpe, spell):
    assert spell(bpe, bpe.encode("hello hello")) == ["hello", "Ġhello"]
    assert spell(bpe, bpe.encode("hellohell")) == ["hello", "hell"]


def test_whole_words_first_only_where_the_rule_says_so(bpe, bpe_metadata, spell):
    assert spell(bpe, bpe.encode("xyz")) == ["x", "y", "z"]
    whole = load_tokenizer(bpe_metadata(pre="llama-bpe", add_bos_token=False))
    assert spell(whole, whole.encode("xyz")) == ["xyz"]
    assert spell(whole, whole.encode("xyzx")) == ["x", "y", "z", "x"]


def test_only_some_rules_add_bos(bpe_metadata):
    assert load_tokenizer(bpe_metadata(pre="llama-bpe")).add_bos
    assert not load_tokenizer(bpe_metadata(pre="qwen2")).add_bos
    assert load_tokenizer(bpe_metadata(pre="qwen2", add_bos_token=True)).add_bos
    assert not load_tokenizer(bpe_metadata(pre="llama-bpe", add_bos_token=False)).add_bos


@pytest.mark.parametrize("pre", ["nothing-like-it", "", None])
def test_an_unknown_or_missing_rule_means_default_and_warns(bpe_metadata, caplog, pre):
    tokenizer = load_tokenizer(bpe_metadata(pre=pre))
    assert tokenizer.encode("1234567") == load_tokenizer(bpe_metadata(pre="default")).encode("1234567")
    assert len(tokenizer.warnings) == 1
    for part in ("tokenizer.ggml.pre", "default rule", "missing" if pre is None else repr(pre)):
        assert part in tokenizer.warnings[0]
        assert part in caplog.text
    assert load_tokenizer(bpe_metadata(pre="default")).warnings == ()


@pytest.mark.parametrize("odd", ["hello", "", " ", "Ġ  Ġ", " Ġ Ġ", "q w", "h e l", "Ġ Ġ\n", "hello hello"])
def test_odd_merges_are_skipped_with_a_warning(bpe, bpe_metadata, caplog, odd):
    metadata = bpe_metadata()
    metadata["tokenizer.ggml.merges"].insert(2, odd)
    tokenizer = load_tokenizer(metadata)
    assert "tokenizer.ggml.merges has 1 lines" in caplog.text
    assert tokenizer.encode("hello  hello 123456") == bpe.encode("hello  hello 123456")


def test_odd_merges_that_cancel_out_are_found(bpe, bpe_metadata, caplog):
    metadata = bpe_metadata()
    metadata["tokenizer.ggml.merges"][2:2] = ["h", "e l l"]
    tokenizer = load_tokenizer(metadata)
    assert "has 2 lines" in caplog.text
    assert tokenizer.encode("hello") == bpe.encode("hello")


def test_typed_control_text_stays_text(bpe, bpe_metadata):
    assert bpe.eos_id not in bpe.encode("<|im_end|>\n")
    assert bpe.encode("<|im_end|>\n", parse_special=True)[0] == bpe.eos_id
    # A control token without punctuation is one word, which "whole words first" must not find.
    whole = load_tokenizer(bpe_metadata(added=[("EOT", 3)], pre="llama-bpe"))
    assert whole.id_of("EOT") not in whole.encode("EOT")


def test_user_defined_tokens_always_match(bpe, spell):
    assert spell(bpe, bpe.encode("ab<tool>ab")) == ["ab", "<tool>", "ab"]


def test_a_character_without_tokens_is_unknown_or_refused(bpe_metadata):
    metadata = bpe_metadata()
    metadata["tokenizer.ggml.tokens"][0xC3] = "unreachable"
    with pytest.raises(VocabularyError, match="é"):
        load_tokenizer(metadata).encode("ab é")
    assert load_tokenizer(metadata).decode(load_tokenizer(metadata).encode("hello")) == "hello"
    metadata["tokenizer.ggml.unknown_token_id"] = 5
    ids = load_tokenizer(metadata).encode("abé")
    assert ids[-2:] == [5, 0xA9]


@pytest.mark.parametrize("role", ["bos_token_id", "eos_token_id"])
def test_a_token_that_begins_or_ends_texts_does_not_stand_for_what_is_unknown(bpe_metadata, role):
    metadata = bpe_metadata()
    metadata["tokenizer.ggml.tokens"][0xF1] = "unreachable"
    metadata["tokenizer.ggml.unknown_token_id"] = metadata[f"tokenizer.ggml.{role}"]
    tokenizer = load_tokenizer(metadata)
    with pytest.raises(VocabularyError, match="no tokens"):
        tokenizer.encode("a \U00040000")


def test_added_tokens_outside_the_byte_alphabet_decode_as_they_are(bpe_metadata):
    tokenizer = load_tokenizer(bpe_metadata(added=[("漢 字", NORMAL)]))
    assert tokenizer.decode([tokenizer.n_vocab - 1]) == "漢 字"


def test_a_leading_space_is_kept(bpe):
    assert bpe.decode(bpe.encode(" hello")) == " hello"


@settings(deadline=None)
@given(st.text())
def test_any_text_comes_back(bpe, text):
    assert bpe.decode(bpe.encode(text)) == text
    assert bpe.decode(bpe.encode(text, parse_special=True), skip_special=False) == text


def test_markers_are_control_tokens_where_the_file_has_no_types(bpe, bpe_metadata):
    tokenizer = load_tokenizer(bpe_metadata(token_type=None))
    assert tokenizer.is_control(tokenizer.bos_id)
    assert tokenizer.bos_id not in tokenizer.encode("<|bos|>")
    assert tokenizer.encode("hello<|bos|>") == bpe.encode("hello<|bos|>")
    plain = load_tokenizer(bpe_metadata(token_type=None, eos_token_id=10))
    assert not plain.is_control(10)
