"""What holds for vocabularies of every kind."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edgellm.tokenizer import StreamDecoder

# ▁ stands for a space in some vocabularies, and PLaMo 2 drops a byte order mark.
TEXT = st.text().filter(lambda text: "▁" not in text and "\ufeff" not in text)


@settings(deadline=None)
@given(TEXT)
@example("  \t\r\n hello  ")
@example("e\u0301 é 👩‍🚀 中文 \x00\x7f\u2028\U0010ffff")
def test_text_comes_back(tokenizer, text):
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    decoder = StreamDecoder(tokenizer)
    assert "".join([*map(decoder.feed, ids), decoder.flush()]) == text


@settings(deadline=None)
@given(st.lists(st.sampled_from([" ", "\n", "hello", "a", "user", "é", "\u3000", "{"])).map("".join))
def test_encoding_again_changes_nothing(any_tokenizer, text):
    first = any_tokenizer.encode(text, add_special=False)
    if any_tokenizer.unk_id not in first:
        again = any_tokenizer.decode(first)
        assert any_tokenizer.encode(again, add_special=False) == any_tokenizer.encode(
            any_tokenizer.decode(any_tokenizer.encode(again, add_special=False)), add_special=False
        )
        assert any_tokenizer.decode(any_tokenizer.encode(again)) == again


def test_typed_control_text_stays_text(any_tokenizer):
    control = [token for token in range(any_tokenizer.n_vocab) if any_tokenizer.is_control(token)]
    assert control
    for token in control:
        typed = any_tokenizer.encode(f"a{any_tokenizer.piece(token)} b", add_special=False)
        assert not {found for found in typed if any_tokenizer.is_control(found)} - {any_tokenizer.unk_id}
        parsed = any_tokenizer.encode(f"a{any_tokenizer.piece(token)} b", add_special=False, parse_special=True)
        assert token in parsed


def test_special_tokens_are_not_doubled(any_tokenizer):
    ids = any_tokenizer.encode("hello")
    inner = any_tokenizer.encode("hello", add_special=False)
    assert len(ids) == len(inner) + any_tokenizer.add_bos + any_tokenizer.add_eos
    text = any_tokenizer.decode(ids, skip_special=False)
    assert any_tokenizer.encode(text, parse_special=True) == ids


@pytest.mark.parametrize("text", ["a" * 100_000, "中" * 30_000, " " * 100_000, "hello " * 20_000, "😀" * 25_000])
def test_long_texts_take_linear_time(any_tokenizer, text):
    start = time.process_time()
    ids = any_tokenizer.encode(text)
    any_tokenizer.decode(ids)
    assert time.process_time() - start < 8


def test_ids_and_texts_of_any_kind_of_mapping(any_tokenizer):
    assert any_tokenizer.warnings == ()
    assert any_tokenizer.encode_segments([("hel", True), ("lo", False)]) == any_tokenizer.encode("hello")
