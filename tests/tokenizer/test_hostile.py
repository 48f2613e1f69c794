"""Metadata that anyone may have written: it loads, or is refused with our error; nothing else happens."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgellm.errors import EdgeLLMError
from edgellm.tokenizer import StreamDecoder, load_tokenizer
from tests.support.vocabularies import KINDS

TEXT = " hello user\n\n é中🦙 ab<s>{\"[SEP]<dna>acgt '12345½"
KEYS = ["tokens", "token_type", "scores", "merges", "pre", "precompiled_charsmap", "add_space_prefix"]
KEYS += ["remove_extra_whitespaces", "normalizer.lowercase", "bos_token_id", "unknown_token_id", "add_bos_token"]
NOT_READ_BY_ALL = ("scores", "merges", "pre")
VALUES = [None, "", "x", 0, -1, 2**64, 1.5, float("nan"), True, [], [""], ["a"], [0], [[]], [None], {}, b"\xff"]


def use(metadata):
    """Everything that can be done with a tokenizer; only its own errors are forgiven."""
    with suppress(EdgeLLMError):
        tokenizer = load_tokenizer(metadata)
        for parse_special in (False, True):
            with suppress(EdgeLLMError):
                ids = tokenizer.encode(TEXT, parse_special=parse_special)
                assert all(0 <= token < tokenizer.n_vocab for token in ids)
        n = tokenizer.n_vocab
        ids = [*range(min(n, 20)), *range(max(0, n - 40), n)]
        decoder = StreamDecoder(tokenizer, skip_special=False)
        assert "".join([*map(decoder.feed, ids), decoder.flush()]) == tokenizer.decode(ids, skip_special=False)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("kind", KINDS)
def test_any_value_in_any_place(request, kind, key):
    factory = request.getfixturevalue(f"{kind}_metadata")
    if key in NOT_READ_BY_ALL and f"tokenizer.ggml.{key}" not in factory():
        return
    for value in VALUES:
        use(factory(**{key: value}))


@pytest.mark.parametrize(
    "model", ["llama", "gpt2", "gemma4", "bert", "t5", "rwkv", "plamo2", "whitespace", "hybriddna"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_vocabulary_of_one_kind_under_the_name_of_another(request, kind, model):
    use(request.getfixturevalue(f"{kind}_metadata")(model=model))


@settings(deadline=None, max_examples=40)
@given(st.data())
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_pieces_types_scores_and_merges(request, kind, data):
    metadata = request.getfixturevalue(f"{kind}_metadata")()
    for _ in range(data.draw(st.integers(1, 6))):
        key = data.draw(st.sampled_from(["tokens", "token_type", "scores", "merges"]))
        values = metadata.get(f"tokenizer.ggml.{key}")
        if values:
            place = data.draw(st.integers(0, len(values) - 1))
            odd = {
                "tokens": st.sampled_from(
                    [b"", b"\0", b"\xff", b" ", b"\\", b"<0xZZ>", "▁".encode(), b"<unk>", b"a" * 500]
                ),
                "token_type": st.integers(0, 6),
                "scores": st.sampled_from([0.0, 1e38, -1e38, float("inf"), float("-inf"), 1e-45]),
                "merges": st.sampled_from(
                    [b"", b" ", b"a", b"a b c", b"a  b", b"\0 \0", b"a b", b"\xff \xff", b"x" * 999]
                ),
            }[key]
            values[place] = data.draw(odd)
    use(metadata)


@pytest.mark.parametrize("kind", KINDS)
def test_a_vocabulary_of_a_single_token(request, kind):
    metadata = request.getfixturevalue(f"{kind}_metadata")()
    for piece in (b"a", b"", b"\xff", "▁".encode(), b"<0x00>", b"[UNK]"):
        for token_type in range(7):
            changes = {"tokens": [piece], "token_type": np.array([token_type]), "scores": np.array([0.0], np.float32)}
            use({**metadata, **{f"tokenizer.ggml.{key}": value for key, value in changes.items()}})
