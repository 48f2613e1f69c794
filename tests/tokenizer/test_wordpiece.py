"""WordPiece vocabularies: clean-up, longest pieces, unknown words, markers."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgellm.errors import VocabularyError
from edgellm.tokenizer import load_tokenizer

NORMAL, USER_DEFINED = 1, 4


def test_longest_pieces_first(wordpiece, spell):
    assert spell(wordpiece, wordpiece.encode("hello user", add_special=False)) == ["▁hello", "▁user"]
    assert spell(wordpiece, wordpiece.encode("hellouser users", add_special=False)) == ["[UNK]", "▁user", "s"]
    assert spell(wordpiece, wordpiece.encode("helloer abba", add_special=False)) == [
        "▁hello",
        "er",
        "▁a",
        "b",
        "b",
        "a",
    ]


def test_a_text_lies_between_cls_and_sep(wordpiece):
    ids = wordpiece.encode("hello", add_special=False)
    assert (wordpiece.bos_id, wordpiece.sep_id, wordpiece.eos_id, wordpiece.mask_id) == (2, 3, 3, 4)
    assert wordpiece.encode("hello") == [2, *ids, 3]
    assert wordpiece.encode("") == [2, 3]
    assert wordpiece.encode("[CLS]hello[SEP]", parse_special=True) == [2, *ids, 3]


@pytest.mark.parametrize("flag", ["add_bos_token", "add_eos_token"])
def test_markers_come_whatever_a_converter_says(wordpiece_metadata, flag):
    assert load_tokenizer(wordpiece_metadata(**{flag: False})).encode("") == [2, 3]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("HELLO  User\t\n", ["▁hello", "▁user"]),
        ("naïve NAI\u0308VE", ["▁naive", "▁naive"]),
        ("a中b", ["▁a", "▁中", "▁b"]),
        ("hello,user!_'s", ["▁hello", "▁,", "▁user", "▁!", "▁_", "▁'", "[UNK]"]),
        ("##", ["▁#", "▁#"]),
        ("he\u00adl\u200blo\0\ufffd", ["▁hello"]),
        ("हि", ["▁ह", "ि"]),
        ("a\u3000b\u2028c\xa0d", ["▁a", "▁b", "▁c", "▁d"]),
    ],
)
def test_text_is_cleaned_like_berts(wordpiece, spell, text, expected):
    assert spell(wordpiece, wordpiece.encode(text, add_special=False)) == expected


def test_case_and_accents_stay_where_the_file_says_so(wordpiece_metadata, spell):
    cased = load_tokenizer(wordpiece_metadata(**{"normalizer.lowercase": False}))
    assert spell(cased, cased.encode("Hello É é e\u0301", add_special=False)) == ["▁Hello", "[UNK]", "▁é", "[UNK]"]
    accents = load_tokenizer(wordpiece_metadata(**{"normalizer.strip_accents": False}))
    assert spell(accents, accents.encode("Hello É", add_special=False)) == ["▁hello", "▁é"]
    bare = load_tokenizer(wordpiece_metadata(**{"normalizer.lowercase": False, "normalizer.strip_accents": True}))
    assert spell(bare, bare.encode("Hello naïve", add_special=False)) == ["▁Hello", "▁naive"]


def test_a_word_of_more_than_100_characters_is_unknown(wordpiece):
    assert len(wordpiece.encode("a" * 100, add_special=False)) == 100
    assert wordpiece.encode("a" * 101, add_special=False) == [wordpiece.unk_id]


def test_an_unknown_word_without_an_unknown_token_is_refused(wordpiece_metadata):
    metadata = wordpiece_metadata(unknown_token_id=None)
    tokenizer = load_tokenizer(metadata)
    assert tokenizer.unk_id is None
    assert tokenizer.decode(tokenizer.encode("hello")) == "hello"
    with pytest.raises(VocabularyError, match="xyz"):
        tokenizer.encode("hello xyz")


def test_typed_markers_stay_text(wordpiece):
    assert wordpiece.sep_id not in wordpiece.encode("a[SEP]b", add_special=False)
    assert wordpiece.encode("a [SEP]\nb", add_special=False, parse_special=True)[1] == wordpiece.sep_id


def test_user_defined_tokens_always_match(wordpiece_metadata, spell):
    tokenizer = load_tokenizer(wordpiece_metadata(added=[("<doc>", USER_DEFINED)]))
    assert spell(tokenizer, tokenizer.encode("a<doc>b", add_special=False)) == ["▁a", "<doc>", "▁b"]


def test_decoding_joins_words_with_single_spaces(wordpiece):
    assert wordpiece.decode(wordpiece.encode("  Hello,\n users ")) == "hello , users"
    assert wordpiece.decode([wordpiece.id_of("er"), wordpiece.id_of("▁a")]) == "er a"


def test_odd_pieces_do_not_disturb_the_others(wordpiece_metadata, wordpiece):
    odd = [(piece, NORMAL) for piece in ("", "▁", "▁hello", "\U0010ffff\U0010ffff", "o")]
    tokenizer = load_tokenizer(wordpiece_metadata(added=odd))
    assert tokenizer.encode("hello hello xyz", add_special=False) == wordpiece.encode("hello hello xyz", False)


@pytest.mark.parametrize("text", ["a" * 100_000, "," * 100_000, "中" * 100_000, "a\u0301" * 50_000])
def test_long_text_without_spaces_takes_linear_time(wordpiece, text):
    start = time.process_time()
    ids = wordpiece.encode(text, add_special=False)
    assert time.process_time() - start < 5
    assert len(ids) in (1, 100_000)


@settings(deadline=None)
@given(st.text())
def test_what_was_decoded_encodes_to_the_same(wordpiece, text):
    ids = [token for token in wordpiece.encode(text, add_special=False) if token != wordpiece.unk_id]
    once = wordpiece.decode(ids)
    assert wordpiece.decode(wordpiece.encode(once)) == once
