"""Byte-level BPE vocabularies: merges, words, digits, fallbacks."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgellm.errors import UnsupportedModelError, VocabularyError
from edgellm.tokenizer import load_tokenizer
from edgellm.tokenizer.pretokenizers import RULES

NORMAL = 1


def words(tokenizer, text):
    """Text cut where the pre-tokenizer cuts it."""
    encoder = tokenizer._encoder
    return [text[start:end] for _, (start, end) in encoder.pre_tokenizer.pre_tokenize_str(text)]


def test_merges_in_their_order(bpe, spell):
    assert spell(bpe, bpe.encode("hello hello")) == ["hello", "Ġhello"]
    assert spell(bpe, bpe.encode("hellohell")) == ["hello", "hell"]


def test_whole_words_first_only_where_the_rule_says_so(bpe, bpe_metadata, spell):
    assert spell(bpe, bpe.encode("xyz")) == ["x", "y", "z"]
    whole = load_tokenizer(bpe_metadata(pre="llama-bpe", add_bos_token=False))
    assert spell(whole, whole.encode("xyz")) == ["xyz"]
    assert spell(whole, whole.encode("xyzx")) == ["x", "y", "z", "x"]


@pytest.mark.parametrize(
    ("pre", "text", "expected"),
    [
        ("gpt-2", "3333+777", ["3333", "+", "777"]),
        ("llama-bpe", "3333+777", ["333", "3", "+", "777"]),
        ("qwen2", "501", ["5", "0", "1"]),
        ("smollm", " 501", [" ", "5", "0", "1"]),
        ("llama-bpe", "1234567", ["123", "456", "7"]),
        ("gpt-2", "3.14", ["3", ".", "14"]),
        ("gpt-2", "١٢٣٤", ["١٢٣٤"]),
        ("llama-bpe", "١٢٣٤", ["١٢٣", "٤"]),
        ("qwen2", "١٢", ["١", "٢"]),
        ("smollm", "١٢", ["١", "٢"]),
        ("default", "1234567", ["123", "456", "7"]),
        ("default", "a+b's", ["a", "+", "b", "'", "s"]),
        ("llama-bpe", "I'M  ok\n\n x", ["I", "'M", " ", " ok", "\n\n", " x"]),
        ("gpt-2", "I'm  ok\n\n x", ["I", "'m", " ", " ok", "\n\n", " x"]),
        ("gpt-2", "I'M", ["I", "'", "M"]),
    ],
)
def test_words_follow_the_rule(bpe_metadata, pre, text, expected):
    assert words(load_tokenizer(bpe_metadata(pre=pre)), text) == expected


@pytest.mark.parametrize("pre", sorted(RULES))
def test_every_rule_keeps_every_character(bpe_metadata, pre):
    tokenizer = load_tokenizer(bpe_metadata(pre=pre))
    text = "I'm 12345 ½ naïve\r\n\t  x_y!? 中文 हिन्दी 👩‍🚀 ΐ  "
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert "".join(words(tokenizer, text)) == text


def test_only_some_rules_add_bos(bpe_metadata):
    assert load_tokenizer(bpe_metadata(pre="llama-bpe")).add_bos
    assert not load_tokenizer(bpe_metadata(pre="qwen2")).add_bos
    assert load_tokenizer(bpe_metadata(pre="qwen2", add_bos_token=True)).add_bos
    assert not load_tokenizer(bpe_metadata(pre="llama-bpe", add_bos_token=False)).add_bos


def test_unknown_rule_is_refused_by_name(bpe_metadata):
    with pytest.raises(UnsupportedModelError, match="nothing-like-it"):
        load_tokenizer(bpe_metadata(pre="nothing-like-it"))


def test_missing_rule_means_default_and_warns(bpe_metadata, caplog):
    tokenizer = load_tokenizer(bpe_metadata(pre=None))
    assert words(tokenizer, "1234567") == ["123", "456", "7"]
    assert "tokenizer.ggml.pre" in caplog.text


@pytest.mark.parametrize("odd", ["hello", "", " ", "Ġ  Ġ", " Ġ Ġ", "q w", "h e l", "Ġ Ġ\n"])
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


def test_added_tokens_outside_the_byte_alphabet_decode_as_they_are(bpe_metadata):
    tokenizer = load_tokenizer(bpe_metadata(added=[("漢 字", NORMAL)]))
    assert tokenizer.decode([tokenizer.n_vocab - 1]) == "漢 字"


def test_a_leading_space_is_kept(bpe):
    assert bpe.decode(bpe.encode(" hello")) == " hello"


def test_long_text_without_spaces_takes_linear_time(bpe):
    start = time.perf_counter()
    ids = bpe.encode("a" * 100_000)
    assert time.perf_counter() - start < 5
    assert len(ids) == 100_000


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
