"""SentencePiece vocabularies: spaces, special tokens, fallbacks."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgellm.errors import VocabularyError
from edgellm.tokenizer import load_tokenizer

BYTE, NORMAL, CONTROL, USER_DEFINED = 6, 1, 3, 4


def test_merges_in_the_order_of_scores(spm, spell):
    assert spell(spm, spm.encode("hello user", add_special=False)) == ["▁hello", "▁user"]
    assert spell(spm, spm.encode("ahello", add_special=False)) == ["▁a", "hello"]


def test_bos_first_and_eos_only_on_request(spm, spm_metadata):
    assert spm.encode("hello") == [1, *spm.encode("hello", add_special=False)]
    with_eos = load_tokenizer(spm_metadata(add_eos_token=True, add_bos_token=False))
    assert with_eos.encode("hello") == [*spm.encode("hello", add_special=False), 2]
    assert spm.encode("") == [1]
    assert spm.encode("", add_special=False) == []


def test_bos_in_parsed_text_is_not_doubled(spm):
    assert spm.encode("<s>hello", parse_special=True) == spm.encode("hello")
    assert spm.encode("<s><s>", parse_special=True) == [1, 1]


def test_typed_control_text_stays_text(spm, spell):
    assert spell(spm, spm.encode("</s>", add_special=False)) == ["▁", "</", "s>"]
    assert 1 not in spm.encode("<s>", add_special=False)
    assert spm.encode("</s>", add_special=False, parse_special=True) == [2]


def test_text_after_a_control_token_is_encoded_like_a_text_of_its_own(spm, spell):
    ids = spm.encode("a<SP> b", add_special=False, parse_special=True)
    assert spell(spm, ids) == ["▁a", "<SP>", "▁▁", "b"]
    assert ids[2:] == spm.encode(" b", add_special=False)
    assert spm.decode(ids, skip_special=False) == "a<SP> b"
    assert spm.decode(ids) == "a b"


def test_user_defined_tokens_match_without_parsing_special(spm, spell):
    ids = spm.encode("<|im_start|>user", add_special=False)
    assert spell(spm, ids) == ["<|im_start|>", "▁user"]
    assert ids[1:] == spm.encode("user", add_special=False)


def test_no_prefix_where_the_file_says_so(spm_metadata, spell):
    tokenizer = load_tokenizer(spm_metadata(add_space_prefix=False))
    assert spell(tokenizer, tokenizer.encode("hello<|im_start|>user", add_special=False)) == [
        "hello",
        "<|im_start|>",
        "user",
    ]
    spaced = tokenizer.encode(" hello", add_special=False)
    assert tokenizer.decode(spaced) == " hello"


def test_encoding_again_does_not_grow_white_space(spm):
    text = "<|im_start|>\nhello<SP> user<SP>\n"
    first = spm.encode(text, parse_special=True)
    ids = first
    for _ in range(5):
        ids = spm.encode(spm.decode(ids, skip_special=False), parse_special=True)
        assert ids == first


def test_phi_3_markers_swallow_white_space(spm_metadata, spell):
    tokenizer = load_tokenizer(spm_metadata(**{"general.name": "Phi-3 mini"}))
    text = "<|im_start|>\n  hello<s>\n"
    ids = tokenizer.encode(text, add_special=False, parse_special=True)
    assert spell(tokenizer, ids) == ["<|im_start|>", "▁hello", "<s>", "▁", "<0x0A>"]
    once = tokenizer.decode(ids, skip_special=False)
    assert tokenizer.encode(once, add_special=False, parse_special=True) == ids


def test_decode_strips_only_an_actual_leading_space(spm):
    brace = spm.id_of('{"')
    assert brace is not None
    assert spm.decode([1, brace]) == '{"'
    assert spm.decode([brace]) == '{"'
    hello = spm.id_of("▁hello")
    assert hello is not None
    assert spm.decode([1, hello, hello]) == "hello hello"
    assert spm.decode([spm.id_of("▁▁"), hello]) == "  hello"


def test_unknown_characters_become_byte_tokens(spm, spell):
    assert spell(spm, spm.encode("🦙", add_special=False)) == ["▁", "<0xF0>", "<0x9F>", "<0xA6>", "<0x99>"]


def test_a_missing_byte_token_falls_back_to_unknown(spm_metadata):
    metadata = spm_metadata()
    for key in ("tokens", "token_type", "scores"):
        del metadata[f"tokenizer.ggml.{key}"][3 + 0x0A]
    tokenizer = load_tokenizer(metadata)
    assert tokenizer.id_of("<0x0A>") is None
    assert tokenizer.encode("a\n", add_special=False)[-1] == tokenizer.unk_id == 0
    assert tokenizer.decode(tokenizer.encode("é☃a")) == "é☃a"


def test_a_newline_piece_stands_in_for_its_byte_token(spm_metadata, spell):
    metadata = spm_metadata()
    metadata["tokenizer.ggml.tokens"][3 + 0x0A] = "\n"
    metadata["tokenizer.ggml.token_type"][3 + 0x0A] = NORMAL
    tokenizer = load_tokenizer(metadata)
    assert spell(tokenizer, tokenizer.encode("a\n", add_special=False)) == ["▁a", "\n"]


@pytest.mark.parametrize("unk", [True, False])
def test_whole_words_only(unk):
    tokens = ["▁yes", "▁no", *(["<unk>"] if unk else [])]
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [NORMAL, NORMAL, *([2] if unk else [])],
        "tokenizer.ggml.scores": [0.0] * len(tokens),
        "tokenizer.ggml.add_bos_token": False,
    }
    if unk:
        metadata["tokenizer.ggml.unknown_token_id"] = 2
        tokenizer = load_tokenizer(metadata)
        assert set(tokenizer.encode("maybe")) == {2}
    else:
        tokenizer = load_tokenizer(metadata)
        with pytest.raises(VocabularyError, match="maybe"):
            tokenizer.encode("maybe")


def test_pieces_too_long_for_one_length_byte(spm_metadata):
    long = "z" * 300
    chain = [("z" * n, NORMAL) for n in range(2, 301)]
    tokenizer = load_tokenizer(spm_metadata(added=chain, add_space_prefix=False))
    ids = tokenizer.encode(long, add_special=False)
    assert tokenizer.decode(ids) == long
    assert tokenizer.decode([tokenizer.id_of(long)]) == long


def test_token_types_are_guessed_when_missing(spm_metadata, spm):
    tokenizer = load_tokenizer(spm_metadata(token_type=None))
    assert tokenizer.encode("hello🦙\n") == spm.encode("hello🦙\n")
    assert tokenizer.is_control(1)
    assert tokenizer.decode([1, *tokenizer.encode("🦙", add_special=False), 2]) == "🦙"


def test_missing_scores_merge_by_id(spm_metadata, spm, caplog):
    tokenizer = load_tokenizer(spm_metadata(scores=None))
    assert tokenizer.encode("hello user") == spm.encode("hello user")
    assert "tokenizer.ggml.scores" in caplog.text


def test_long_text_without_spaces_takes_linear_time(spm):
    start = time.process_time()
    ids = spm.encode("hello" * 20_000 + "z" * 50_000)
    assert time.process_time() - start < 5
    assert len(ids) > 50_000


@settings(deadline=None)
@given(st.text().filter(lambda text: "▁" not in text))
def test_any_text_comes_back(spm, text):
    assert spm.decode(spm.encode(text)) == text
    assert spm.decode(spm.encode(text, parse_special=True), skip_special=False).removeprefix(
        "<s>"
    ) == text.removeprefix("<s>")


@settings(deadline=None)
@given(st.lists(st.sampled_from(["hello", " ", "\n", "<SP>", "<s>", "</s>", "<|im_start|>", "user", "  a"])))
def test_text_with_markers_comes_back(spm, parts):
    text = "".join(parts)
    ids = spm.encode(text, add_special=False, parse_special=True)
    assert spm.decode(ids, skip_special=False) == text


def test_a_user_defined_token_keeps_its_own_space(spm_metadata):
    tokenizer = load_tokenizer(spm_metadata(added=[("   x", USER_DEFINED)]))
    ids = tokenizer.encode("   xhello", add_special=False)
    assert ids[0] == tokenizer.n_vocab - 1
    assert tokenizer.decode(ids) == "   xhello"


def test_eos_in_parsed_text_is_not_doubled(spm_metadata):
    tokenizer = load_tokenizer(spm_metadata(add_eos_token=True))
    assert tokenizer.encode("hello</s>", parse_special=True) == tokenizer.encode("hello")
    assert tokenizer.encode("hello</s>", parse_special=True).count(2) == 1


def test_undefined_and_unused_types_and_a_second_unknown(spm_metadata, spm):
    metadata = spm_metadata(added=[("<unk2>", 2)])
    types = metadata["tokenizer.ggml.token_type"]
    types[metadata["tokenizer.ggml.tokens"].index("▁hello")] = 0
    types[metadata["tokenizer.ggml.tokens"].index("▁user")] = 5
    tokenizer = load_tokenizer(metadata)
    assert tokenizer.encode("hello") == spm.encode("hello")
    # An unused piece may be merged through, but is taken apart again.
    assert tokenizer.id_of("▁user") not in tokenizer.encode("user")
    assert tokenizer.decode(tokenizer.encode("hello user")) == "hello user"
