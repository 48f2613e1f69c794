"""Tiny vocabularies of every kind, as the metadata a GGUF file would have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from edgellm.tokenizer import Tokenizer, load_tokenizer

Metadata = dict[str, Any]
Factory = Callable[..., Metadata]

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6

# In merge order: the earlier, the sooner two neighbours become this piece.
_SPM_MERGES = ["▁▁", "he", "ll", "▁b", "▁a", "hell", "hello", "▁hello", '{"', "us", "er", "user", "▁user", "</", "s>"]
_SPM_CHARS = ["▁", *'abcdefghijklmnopqrstuvwxyz{}"<>/|_.', "é"]
_BPE_MERGES = ["h e", "l l", "he ll", "hell o", "Ġ hello", "a b", "1 2", "12 3", "4 5", "45 6", "123 456"]
_WORD_PIECES = ["▁hello", "▁hell", "o", "▁us", "er", "▁user", "▁world", "▁naive", "▁中", "▁,", "▁!", "▁'", "▁_", "s"]
_WORD_PIECES += ["▁#", "#", "▁strasse", "▁Hello", "▁é", "ि", "▁ह"]
_SPACED_MERGES = ["h e", "l l", "he ll", "hell o", "▁ hello", "▁ ▁", "▁▁ ▁▁", "\n \n", "a b", '{ "']


def byte_char(byte: int) -> str:
    """The character that byte-level vocabularies write for a byte."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    if byte in visible:
        return chr(byte)
    return chr(256 + [b for b in range(256) if b not in visible].index(byte))


def _changed(metadata: Metadata, changes: dict[str, Any]) -> Metadata:
    for key, value in changes.items():
        full = key if key.startswith("general.") else f"tokenizer.ggml.{key}"
        if value is None:
            metadata.pop(full, None)
        else:
            metadata[full] = value
    return metadata


@pytest.fixture(scope="session")
def spm_metadata() -> Factory:
    """A factory of SPM metadata. ``added`` are more (piece, type) pairs; keywords replace keys, None removes one."""

    def make(added: list[tuple[str, int]] | None = None, **changes: Any) -> Metadata:
        rows: list[tuple[str, int, float]] = [("<unk>", UNKNOWN, 0.0), ("<s>", CONTROL, 0.0), ("</s>", CONTROL, 0.0)]
        rows += [(f"<0x{byte:02X}>", BYTE, 0.0) for byte in range(256)]
        rows += [(piece, NORMAL, -float(rank)) for rank, piece in enumerate(_SPM_MERGES)]
        rows += [(piece, NORMAL, -1000.0) for piece in _SPM_CHARS]
        rows += [("<SP>", CONTROL, 0.0), ("<|im_start|>", USER_DEFINED, 0.0)]
        rows += [(piece, kind, 0.0) for piece, kind in added or []]
        metadata = {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": [row[0] for row in rows],
            "tokenizer.ggml.token_type": [row[1] for row in rows],
            "tokenizer.ggml.scores": [row[2] for row in rows],
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2,
            "tokenizer.ggml.unknown_token_id": 0,
        }
        return _changed(metadata, changes)

    return make


@pytest.fixture(scope="session")
def bpe_metadata() -> Factory:
    """A factory of byte-level BPE metadata, with the same keywords as ``spm_metadata``."""

    def make(added: list[tuple[str, int]] | None = None, **changes: Any) -> Metadata:
        rows = [(byte_char(byte), NORMAL) for byte in range(256)]
        rows += [(merge.replace(" ", ""), NORMAL) for merge in _BPE_MERGES]
        rows += [("xyz", NORMAL), ("<|bos|>", CONTROL), ("<|im_end|>", CONTROL), ("<tool>", USER_DEFINED)]
        rows += added or []
        metadata = {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "gpt-2",
            "tokenizer.ggml.tokens": [row[0] for row in rows],
            "tokenizer.ggml.token_type": [row[1] for row in rows],
            "tokenizer.ggml.merges": list(_BPE_MERGES),
            "tokenizer.ggml.bos_token_id": 256 + len(_BPE_MERGES) + 1,
            "tokenizer.ggml.eos_token_id": 256 + len(_BPE_MERGES) + 2,
        }
        return _changed(metadata, changes)

    return make


@pytest.fixture(scope="session")
def spaced_metadata() -> Factory:
    """A factory of metadata like Gemma 4's, with the same keywords as ``spm_metadata``."""

    def make(added: list[tuple[str, int]] | None = None, **changes: Any) -> Metadata:
        rows = [("<pad>", CONTROL), ("<eos>", CONTROL), ("<bos>", CONTROL), ("<unk>", CONTROL)]
        rows += [(f"<0x{byte:02X}>", BYTE) for byte in range(256)]
        rows += [(char, NORMAL) for char in '▁\nabehlo{"']
        rows += [(merge.replace(" ", ""), NORMAL) for merge in _SPACED_MERGES]
        rows += [("<turn|>", CONTROL), ("<|tool>", USER_DEFINED)]
        rows += added or []
        metadata = {
            "tokenizer.ggml.model": "gemma4",
            "tokenizer.ggml.tokens": [row[0] for row in rows],
            "tokenizer.ggml.token_type": [row[1] for row in rows],
            "tokenizer.ggml.merges": list(_SPACED_MERGES),
            "tokenizer.ggml.bos_token_id": 2,
            "tokenizer.ggml.eos_token_id": 1,
            "tokenizer.ggml.unknown_token_id": 3,
            "tokenizer.ggml.add_bos_token": True,
        }
        return _changed(metadata, changes)

    return make


@pytest.fixture(scope="session")
def wordpiece_metadata() -> Factory:
    """A factory of WordPiece metadata, with the same keywords as ``spm_metadata``."""

    def make(added: list[tuple[str, int]] | None = None, **changes: Any) -> Metadata:
        rows = [(piece, CONTROL) for piece in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")]
        rows += [(piece, NORMAL) for piece in _WORD_PIECES]
        rows += [(piece, NORMAL) for letter in "abcd" for piece in ("▁" + letter, letter)]
        rows += added or []
        metadata = {
            "tokenizer.ggml.model": "bert",
            "tokenizer.ggml.tokens": [row[0] for row in rows],
            "tokenizer.ggml.token_type": [row[1] for row in rows],
            "tokenizer.ggml.padding_token_id": 0,
            "tokenizer.ggml.unknown_token_id": 1,
            "tokenizer.ggml.cls_token_id": 2,
            "tokenizer.ggml.seperator_token_id": 3,
            "tokenizer.ggml.mask_token_id": 4,
        }
        return _changed(metadata, changes)

    return make


@pytest.fixture(scope="session")
def spm(spm_metadata: Factory) -> Tokenizer:
    return load_tokenizer(spm_metadata())


@pytest.fixture(scope="session")
def bpe(bpe_metadata: Factory) -> Tokenizer:
    return load_tokenizer(bpe_metadata())


@pytest.fixture(scope="session")
def spaced(spaced_metadata: Factory) -> Tokenizer:
    return load_tokenizer(spaced_metadata())


@pytest.fixture(scope="session")
def wordpiece(wordpiece_metadata: Factory) -> Tokenizer:
    return load_tokenizer(wordpiece_metadata())


@pytest.fixture(scope="session", params=["spm", "bpe", "spaced", "wordpiece"])
def any_tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    """Each of them."""
    found: Tokenizer = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="session", params=["spm", "bpe", "spaced"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    """Each that gives text back as it was."""
    found: Tokenizer = request.getfixturevalue(request.param)
    return found


def pieces(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    """The spelling of each id."""
    return [tokenizer.piece(token) for token in ids]


@pytest.fixture(scope="session")
def spell() -> Callable[[Tokenizer, list[int]], list[str]]:
    return pieces
