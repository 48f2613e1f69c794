"""Vocabularies that contradict themselves are refused by key, and harmless oddities are survived."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from edgellm.errors import ArgumentError, ModelFormatError, UnsupportedModelError, VocabularyError
from edgellm.tokenizer import load_tokenizer
from edgellm.tokenizer.load import KINDS

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4


class FileArray:
    """An array as a reader hands it out."""

    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def bytes_list(self):
        return [value.encode() for value in self.values]

    def tolist(self):
        return list(self.values)

    def numpy(self):
        return np.asarray(self.values)


@pytest.mark.parametrize("make", ["spm_metadata", "bpe_metadata"])
def test_arrays_of_a_reader_give_the_same_tokenizer(request, make):
    metadata = request.getfixturevalue(make)()
    plain = load_tokenizer(metadata)
    read = load_tokenizer({key: FileArray(v) if isinstance(v, list) else v for key, v in metadata.items()})
    text = "hello user <|im_end|> 123456 🦙"
    assert read.encode(text, parse_special=True) == plain.encode(text, parse_special=True)
    assert read.decode(plain.encode(text)) == plain.decode(plain.encode(text))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint32", "int32", "int64", "uint64"])
def test_token_types_of_any_integer_type_load(spm_metadata, spm, dtype):
    metadata = spm_metadata()
    metadata["tokenizer.ggml.token_type"] = np.array(metadata["tokenizer.ggml.token_type"], dtype)
    assert load_tokenizer(metadata).encode("hello🦙") == spm.encode("hello🦙")


@pytest.mark.parametrize("key", ["scores", "token_type"])
@pytest.mark.parametrize("extra", [-1, 1])
def test_lengths_that_differ_are_named(spm_metadata, key, extra):
    metadata = spm_metadata()
    full = f"tokenizer.ggml.{key}"
    n = len(metadata["tokenizer.ggml.tokens"])
    metadata[full] = (metadata[full] * 2)[: n + extra]
    with pytest.raises(
        ModelFormatError, match=rf"some\.gguf: {full} has {n + extra} .*tokenizer\.ggml\.tokens has {n}"
    ):
        load_tokenizer(metadata, "some.gguf")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tokens", None),
        ("tokens", []),
        ("tokens", "abc"),
        ("tokens", 5),
        ("tokens", [1, 2, 3]),
        ("tokens", np.arange(3)),
        ("token_type", ["normal"]),
        ("token_type", "normal"),
        ("token_type", 1),
        ("token_type", [1.5]),
        ("token_type", [7]),
        ("token_type", [-1]),
        ("token_type", [2**70]),
        ("scores", ["0"]),
        ("scores", [float("nan")]),
        ("scores", [[0.0]]),
        ("model", 3),
        ("bos_token_id", "1"),
        ("bos_token_id", True),
        ("eos_token_id", 1.0),
        ("eos_token_id", [1]),
        ("add_bos_token", 1),
        ("add_space_prefix", "false"),
    ],
)
def test_wrong_values_are_named(key, value):
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["a"],
        "tokenizer.ggml.scores": [0.0],
        "tokenizer.ggml.token_type": [1],
    }
    metadata[f"tokenizer.ggml.{key}"] = value
    if value is None:
        del metadata[f"tokenizer.ggml.{key}"]
    with pytest.raises(ModelFormatError, match=rf"some\.gguf: tokenizer\.ggml\.{key}"):
        load_tokenizer(metadata, "some.gguf")


@pytest.mark.parametrize(("key", "value"), [("merges", None), ("merges", [1]), ("merges", "h e"), ("pre", 2)])
def test_wrong_values_of_bpe_are_named(bpe_metadata, key, value):
    with pytest.raises(ModelFormatError, match=rf"model: tokenizer\.ggml\.{key}"):
        load_tokenizer(bpe_metadata(**{key: value}))


@pytest.mark.parametrize("bad", [1, -1, 4294967295, 2**64 - 1])
@pytest.mark.parametrize("key", ["bos", "eos", "unknown", "eot", "eom", "padding"])
def test_special_ids_outside_of_the_vocabulary_are_ignored(caplog, key, bad):
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["a"],
        "tokenizer.ggml.scores": [0.0],
        "tokenizer.ggml.token_type": [1],
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": True,
        "tokenizer.ggml.add_space_prefix": False,
        f"tokenizer.ggml.{key}_token_id": bad,
    }
    tokenizer = load_tokenizer(metadata)
    assert f"{key}_token_id is {bad}" in caplog.text
    ids = (tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id, tokenizer.eot_id, tokenizer.eom_id, tokenizer.pad_id)
    assert ids == (None,) * 6
    assert tokenizer.eog_ids == frozenset()
    assert tokenizer.encode("aa") == [0, 0]


@pytest.mark.parametrize("model", [None, "no_vocab", "none"])
def test_no_vocabulary(model):
    metadata = {} if model is None else {"tokenizer.ggml.model": model}
    with pytest.raises(VocabularyError, match=r"some\.gguf"):
        load_tokenizer(metadata, "some.gguf")


@pytest.mark.parametrize("model", ["unheard-of", "\x1b[31m"])
def test_other_kinds_are_refused_by_name(model):
    with pytest.raises(UnsupportedModelError) as caught:
        load_tokenizer({"tokenizer.ggml.model": model})
    assert repr(model) in str(caught.value)


def test_the_page_about_tokenizers_lists_every_kind():
    page = (Path(__file__).parents[2] / "docs" / "tokenizers.md").read_text("utf-8")
    assert sorted(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == sorted(KINDS)


@pytest.mark.parametrize("odd", ["", "hello", "a\0b", "<0xZZ>"])
@pytest.mark.parametrize("make", ["spm_metadata", "bpe_metadata"])
def test_odd_pieces_do_not_disturb_the_others(request, make, odd):
    factory = request.getfixturevalue(make)
    plain = load_tokenizer(factory())
    tokenizer = load_tokenizer(factory(added=[(odd, 6 if odd.startswith("<0x") else NORMAL)]))
    text = "hello user 🦙"
    assert tokenizer.encode(text) == plain.encode(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode([*tokenizer.encode("a", add_special=False), tokenizer.n_vocab - 1]) == f"a{odd}"


def test_repeated_byte_tokens(spm_metadata, spm):
    tokenizer = load_tokenizer(spm_metadata(added=[("<0x0a>", 6)]))
    assert tokenizer.encode("\n") == spm.encode("\n")
    assert tokenizer.decode([tokenizer.n_vocab - 1]) == "\n"


def test_pieces_that_are_not_utf8_and_occur_twice(spm_metadata, spm):
    metadata = spm_metadata(added=[("x", NORMAL), ("x", NORMAL)])
    metadata["tokenizer.ggml.tokens"][-2:] = [b"\xff", b"\xff"]
    tokenizer = load_tokenizer(metadata)
    assert tokenizer.encode("hello") == spm.encode("hello")
    assert "repeat another" in tokenizer.warnings[0]


def test_pieces_that_are_not_utf8(spm_metadata, bpe_metadata):
    for metadata in (spm_metadata(), bpe_metadata()):
        for key, value in (("tokens", b"\xff\xfe"), ("token_type", USER_DEFINED), ("scores", 0.0)):
            if f"tokenizer.ggml.{key}" in metadata:
                metadata[f"tokenizer.ggml.{key}"].append(value)
        tokenizer = load_tokenizer(metadata)
        last = tokenizer.n_vocab - 1
        assert tokenizer.token_bytes(last) == b"\xff\xfe"
        assert tokenizer.piece(last) == "\ufffd\ufffd"
        assert last not in tokenizer.encode("hello \ufffd\ufffd")


def test_ends_are_known_by_spelling(spm_metadata):
    added = [("<|eot_id|>", CONTROL), ("<|im_end|>", USER_DEFINED), ("<end_of_turn>", NORMAL), ("<EOT>", NORMAL)]
    tokenizer = load_tokenizer(spm_metadata(added=added))
    n = tokenizer.n_vocab
    assert tokenizer.eog_ids == {2, n - 4, n - 3, n - 2}
    assert tokenizer.eot_id == n - 4
    # What ends a generation is never spelled by a user, whatever type the file gives it.
    assert tokenizer.is_control(n - 3)
    assert n - 3 not in tokenizer.encode("<|im_end|>")


def test_markup_that_looks_like_an_end_is_no_end(spm_metadata):
    metadata = spm_metadata(eos_token_id=1)
    metadata["tokenizer.ggml.token_type"][2] = USER_DEFINED
    assert load_tokenizer(metadata).eog_ids == {1}


def test_end_of_a_channel_is_no_end_of_a_turn(bpe_metadata):
    added = [("<|end|>", CONTROL), ("<|return|>", CONTROL), ("<|call|>", CONTROL)]
    tokenizer = load_tokenizer(bpe_metadata(added=added))
    assert tokenizer.id_of("<|end|>") not in tokenizer.eog_ids
    assert {tokenizer.id_of("<|return|>"), tokenizer.id_of("<|call|>")} <= tokenizer.eog_ids


def test_ids_given_by_key(bpe_metadata):
    tokenizer = load_tokenizer(bpe_metadata(eot_token_id=5, eom_token_id=6, padding_token_id=7))
    assert (tokenizer.eot_id, tokenizer.eom_id, tokenizer.pad_id) == (5, 6, 7)
    assert {5, 6} <= tokenizer.eog_ids
    assert 7 not in tokenizer.eog_ids


def test_usual_ids_only_where_the_pieces_agree(spm_metadata):
    tokenizer = load_tokenizer(spm_metadata(bos_token_id=None, eos_token_id=None, unknown_token_id=None))
    assert (tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id) == (0, 1, 2)
    metadata = spm_metadata(bos_token_id=None)
    metadata["tokenizer.ggml.tokens"][1] = "<first>"
    assert load_tokenizer(metadata).bos_id is None
    assert load_tokenizer(metadata).encode("a") == load_tokenizer(metadata).encode("a", add_special=False)


def test_names_and_bytes(any_tokenizer):
    for token in range(any_tokenizer.n_vocab):
        found = any_tokenizer.id_of(any_tokenizer.piece(token))
        assert found == token
        if any_tokenizer.is_control(token):
            assert any_tokenizer.token_bytes(token) == b""
            assert any_tokenizer.token_bytes(token, special=True) == any_tokenizer.piece(token).encode()
    assert any_tokenizer.id_of("no such piece") is None
    assert any_tokenizer.id_of("") is None
    assert any_tokenizer.decode(np.array(any_tokenizer.encode("hello"))) == "hello"


def test_longest_of_overlapping_added_tokens(bpe_metadata, spell):
    added = [(text, USER_DEFINED) for text in ("\n", "\n\n", "\n\n\n", "<t", "<t>", "<t>>>x")]
    tokenizer = load_tokenizer(bpe_metadata(added=added))
    assert spell(tokenizer, tokenizer.encode("\n\n\n\na\n<t>>><tx<")) == [
        "\n\n\n",
        "\n",
        "a",
        "\n",
        "<t>",
        ">",
        ">",
        "<t",
        "x",
        "<",
    ]


def test_an_added_character_inside_a_longer_added_token(bpe_metadata, spell):
    tokenizer = load_tokenizer(bpe_metadata(added=[("\n", USER_DEFINED), ("\n\n\n", USER_DEFINED)]))
    assert spell(tokenizer, tokenizer.encode("\n\na")) == ["\n", "\n", "a"]


def test_lone_surrogates_are_refused(any_tokenizer):
    with pytest.raises(ArgumentError, match="index 2"):
        any_tokenizer.encode("é \ud83d")
