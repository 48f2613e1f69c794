"""Texts that no repetition reaches across, as tokens."""

from __future__ import annotations

import pytest

from edgellm.breakers import token_sequences
from edgellm.tokenizer import load_tokenizer
from tests.support.tiny import END, vocabulary


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(vocabulary(["ab", "b:", ":", " :", "xa", "bc", "\n\n", " b"]))


def spelled(tokenizer, sequences) -> set[tuple[str, ...]]:
    return {tuple(tokenizer.token_bytes(t, special=True).decode("utf-8", "replace") for t in s) for s in sequences}


def test_every_token_with_the_text_in_it_is_one(tokenizer):
    assert spelled(tokenizer, token_sequences([":"], tokenizer)) >= {(":",), (" :",), ("b:",)}
    assert all(len(s) == 1 for s in token_sequences([":"], tokenizer))


def test_a_text_over_several_tokens_is_found_from_each_beginning(tokenizer):
    found = spelled(tokenizer, token_sequences(["ab:"], tokenizer))
    assert ("xa", "b:") in found
    assert ("ab", ":") in found
    assert ("a", "b:") in found
    assert all("".join(s).endswith("ab:") for s in found)


def test_the_rest_of_a_text_gets_no_space_in_front(tokenizer):
    rests = {s[1:] for s in spelled(tokenizer, token_sequences(["xab"], tokenizer)) if len(s) > 1}
    assert rests
    assert all(not rest[0].startswith(" ") for rest in rests)


def test_control_tokens_can_be_breakers(tokenizer):
    text = tokenizer.token_bytes(END, special=True).decode()
    assert (END,) in token_sequences([text], tokenizer)


def test_characters_of_several_bytes(tokenizer):
    found = token_sequences(["é!"], tokenizer)
    assert found
    assert all(b"".join(map(tokenizer.token_bytes, s)).endswith("é!".encode()) for s in found)


def test_no_texts_are_no_breakers(tokenizer):
    assert token_sequences([], tokenizer) == []
