"""BPE over text itself, as Gemma 4 has it: spaces, byte tokens, BOS."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgellm.errors import VocabularyError
from edgellm.tokenizer import load_tokenizer


def test_merges_run_over_spaces_and_lines(spaced, spell):
    assert spell(spaced, spaced.encode("hello  hello\n\n\nab", add_special=False)) == [
        "hello",
        "▁",
        "▁hello",
        "\n\n",
        "\n",
        "ab",
    ]
    assert spell(spaced, spaced.encode("    h", add_special=False)) == ["▁▁▁▁", "h"]


def test_characters_without_tokens_become_bytes(spaced, spell):
    assert spell(spaced, spaced.encode("a🦙", add_special=False)) == ["a", "<0xF0>", "<0x9F>", "<0xA6>", "<0x99>"]


@pytest.mark.parametrize("unk", [True, False])
def test_without_byte_tokens_they_are_unknown_or_refused(spaced_metadata, unk):
    metadata = spaced_metadata() if unk else spaced_metadata(unknown_token_id=None)
    for key in ("tokens", "token_type"):
        del metadata[f"tokenizer.ggml.{key}"][4 : 4 + 256]
    tokenizer = load_tokenizer(metadata)
    assert tokenizer.decode(tokenizer.encode("hello ab")) == "hello ab"
    if unk:
        assert tokenizer.encode("a🦙🦙b", add_special=False)[1:-1] == [3]
    else:
        with pytest.raises(VocabularyError, match="🦙"):
            tokenizer.encode("a🦙b")


def test_bos_comes_even_where_the_file_forgot_it(spaced_metadata):
    for flag in (True, False, None):
        assert load_tokenizer(spaced_metadata(add_bos_token=flag)).encode("a")[0] == 2
    sarvam = spaced_metadata(model="gpt2", pre="sarvam-moe", add_bos_token=False)
    assert load_tokenizer(sarvam).encode("ab") == load_tokenizer(spaced_metadata()).encode("ab")[1:]


def test_other_files_name_the_rule(spaced_metadata, spaced):
    for pre in ("gemma4", "granite-embed-multi-311m", "sarvam-moe"):
        tokenizer = load_tokenizer(spaced_metadata(model="gpt2", pre=pre))
        assert tokenizer.encode("hello  ab\n\n") == spaced.encode("hello  ab\n\n")


def test_words_that_all_begin_with_a_space(spaced_metadata, spell):
    tokenizer = load_tokenizer(spaced_metadata(model="gpt2", pre="mmbert"))
    ids = tokenizer.encode("hello  hello\n\nab\n h", add_special=False)
    assert spell(tokenizer, ids) == ["▁hello", "▁", "▁hello", "\n\n", "▁", "ab", "\n", "▁", "h"]
    assert tokenizer.decode(ids[:3]) == "hello  hello"
    bare = load_tokenizer(spaced_metadata(model="gpt2", pre="mmbert", add_bos_token=False))
    assert spell(bare, bare.encode("a")) == ["▁", "a"]


def test_decode_drops_no_real_character(spaced):
    assert spaced.decode([2, spaced.id_of('{"')]) == '{"'
    assert spaced.decode(spaced.encode(" hello")) == " hello"


def test_typed_control_text_stays_text(spaced):
    assert spaced.id_of("<turn|>") not in spaced.encode("<turn|>")
    assert 2 not in spaced.encode("<bos>", add_special=False)
    assert spaced.encode("<turn|>", parse_special=True)[-1] == spaced.id_of("<turn|>")
    assert spaced.id_of("<|tool>") in spaced.encode("<|tool>")


@settings(deadline=None)
@given(st.text().filter(lambda text: "▁" not in text))
def test_any_text_comes_back(spaced, text):
    assert spaced.decode(spaced.encode(text)) == text
