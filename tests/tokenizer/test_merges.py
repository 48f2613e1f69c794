"""Merging, against the library that many models were made with."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers.models import BPE

from edgellm.tokenizer import load_tokenizer, merges

SPACE = "▁"


@st.composite
def vocabularies(draw: st.DrawFn, letters: str) -> tuple[list[str], list[str]]:
    """Pieces and merges, each merge of pieces there already."""
    pieces, lines = list(letters), []
    for _ in range(draw(st.integers(0, 12))):
        left, right = draw(st.sampled_from(pieces)), draw(st.sampled_from(pieces))
        lines.append(f"{left} {right}")
        if left + right not in pieces:
            pieces.append(left + right)
    return pieces, lines


def metadata_of(pieces: list[str], lines: list[str], **keys: str) -> dict[str, Any]:
    metadata = {"model": "gpt2", "pre": "superbpe", "tokens": pieces, "token_type": [1] * len(pieces), "merges": lines}
    return {f"tokenizer.ggml.{key}": value for key, value in {**metadata, **keys}.items()}


def library_ids(pieces: list[str], lines: list[str], text: str) -> list[int]:
    pairs = [tuple(line.split(" ")) for line in lines]
    model = BPE(vocab={piece: token for token, piece in enumerate(pieces)}, merges=pairs)
    ids: list[int] = Library(model).encode(text).ids
    return ids


@settings(deadline=None)
@given(vocabularies("abc"), st.text(st.sampled_from("abc"), max_size=60))
def test_ids_are_the_librarys(vocabulary, text):
    assert load_tokenizer(metadata_of(*vocabulary)).encode(text) == library_ids(*vocabulary, text)


@settings(deadline=None)
@given(vocabularies("ab"), st.text(st.sampled_from("ab"), max_size=60))
def test_long_words_are_merged_like_short_ones(vocabulary, text):
    tokenizer = load_tokenizer(metadata_of(*vocabulary))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merges, "_SHORT", 2)
        assert tokenizer.encode(text) == library_ids(*vocabulary, text)


@settings(deadline=None)
@given(vocabularies(f"ab>{SPACE}"), st.text(st.sampled_from("ab> "), max_size=40))
def test_cuts_before_spaces_leave_no_trace(vocabulary, text):
    tokenizer = load_tokenizer(metadata_of(*vocabulary, pre="sarvam-moe"))
    assert tokenizer.encode(text) == library_ids(*vocabulary, text.replace(" ", SPACE))


def test_words_are_remembered_within_limits(bpe_metadata, monkeypatch):
    tokenizer = load_tokenizer(bpe_metadata())
    monkeypatch.setattr("edgellm.tokenizer.words._MOST_WORDS", 8)
    text = " ".join(f"w{i} hello" for i in range(30)) + " " + "x" * 500
    first = tokenizer.encode(text)
    assert tokenizer.encode(text) == first
    assert len(tokenizer._words._known) <= 8
    assert all(len(word) <= 64 for word in tokenizer._words._known)
