"""The streamed text is the whole text, in whole characters."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgellm.errors import VocabularyError
from edgellm.tokenizer import StopMatcher, StreamDecoder, load_tokenizer

NORMAL = 1


def bytes_to_ids(bpe, data):
    """One token for each byte."""
    found = {bpe.token_bytes(token): token for token in range(256)}
    return [found[bytes([byte])] for byte in data]


def chunks(tokenizer, ids, **options):
    decoder = StreamDecoder(tokenizer, **options)
    return [decoder.feed(token) for token in ids] + [decoder.flush()]


def test_a_character_of_four_tokens_comes_out_once(bpe):
    ids = bytes_to_ids(bpe, "😀".encode())
    assert chunks(bpe, ids) == ["", "", "", "😀", ""]


@pytest.mark.parametrize(("text", "cut"), [("😀", 2), ("ď", 1), ("中", 1), ("中", 2)])
def test_a_character_split_between_tokens(bpe_metadata, bpe, text, cut):
    data = f"a{text}b".encode()
    spelled = "".join(bpe.piece(token) for token in bytes_to_ids(bpe, data))
    parts = [(spelled[: 1 + cut], NORMAL), (spelled[1 + cut :], NORMAL)]
    tokenizer = load_tokenizer(bpe_metadata(added=parts))
    ids = [tokenizer.n_vocab - 2, tokenizer.n_vocab - 1]
    assert chunks(tokenizer, ids) == ["a", f"{text}b", ""]


def test_spm_byte_tokens_join_too(spm):
    ids = spm.encode("é🦙", add_special=False)
    out = chunks(spm, ids)
    assert "".join(out) == "é🦙"
    assert "\ufffd" not in "".join(out)


def test_an_unfinished_character_is_flushed_as_one_replacement(bpe):
    assert chunks(bpe, bytes_to_ids(bpe, b"\xf0\x9f")) == ["", "", "\ufffd"]
    assert chunks(bpe, bytes_to_ids(bpe, b"a")) == ["a", ""]


def test_stray_bytes_do_not_stall(bpe):
    out = chunks(bpe, bytes_to_ids(bpe, b"\x80" * 100))
    assert out == ["\ufffd"] * 100 + [""]


def test_a_broken_character_ends_at_the_next_one(bpe):
    assert chunks(bpe, bytes_to_ids(bpe, b"\xe4\xbdx")) == ["", "", "\ufffdx", ""]


def test_control_tokens_are_silent_unless_asked_for(bpe):
    ids = [*bpe.encode("ab"), bpe.eos_id]
    assert "".join(chunks(bpe, ids)) == "ab"
    assert "".join(chunks(bpe, ids, skip_special=False)) == "ab<|im_end|>"


def test_the_dummy_prefix_belongs_to_the_start_of_a_text(spm):
    hello = spm.id_of("▁hello")
    assert "".join(chunks(spm, [hello])) == "hello"
    assert "".join(chunks(spm, [hello], after=spm.bos_id)) == "hello"
    assert "".join(chunks(spm, [hello], after=spm.id_of("a"))) == " hello"


def test_ids_outside_of_the_vocabulary(any_tokenizer):
    for bad in (any_tokenizer.n_vocab, -1, 2**40):
        with pytest.raises(VocabularyError, match=str(bad)):
            StreamDecoder(any_tokenizer).feed(bad)
        with pytest.raises(VocabularyError, match=str(bad)):
            any_tokenizer.decode([bad])
        with pytest.raises(VocabularyError, match=str(bad)):
            any_tokenizer.token_bytes(bad)
        with pytest.raises(VocabularyError, match=str(bad)):
            any_tokenizer.piece(bad)
        with pytest.raises(VocabularyError, match=str(bad)):
            any_tokenizer.is_control(bad)


@settings(deadline=None)
@given(st.data(), st.booleans())
def test_joined_stream_is_the_whole_text(any_tokenizer, data, skip_special):
    ids = data.draw(st.lists(st.integers(0, any_tokenizer.n_vocab - 1)))
    assert "".join(chunks(any_tokenizer, ids, skip_special=skip_special)) == any_tokenizer.decode(ids, skip_special)


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_stream_with_stops_is_the_whole_text_up_to_the_first(any_tokenizer, data):
    ids = data.draw(
        st.lists(st.integers(0, any_tokenizer.n_vocab - 1) | st.sampled_from(any_tokenizer.encode("hello ab user")))
    )
    whole = any_tokenizer.decode(ids)
    piece = st.builds(lambda a, n: whole[a : a + n], st.integers(0, max(0, len(whole) - 1)), st.integers(1, 5))
    stops = data.draw(st.lists(piece.filter(bool) | st.text(min_size=1, max_size=3), max_size=3))
    matcher, decoder, out = StopMatcher(stops), StreamDecoder(any_tokenizer), ""
    for token in ids:
        text, stopped = matcher.feed(decoder.feed(token))
        out += text
        if stopped:
            break
    else:
        out += matcher.feed(decoder.flush())[0] + matcher.flush()
    assert out == whole[: min((whole.find(stop) for stop in stops if stop in whole), default=len(whole))]
