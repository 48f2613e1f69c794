"""Tiny vocabularies of every kind, as the metadata a GGUF file would have.

``added`` are more (piece, type) pairs; keywords replace keys, given without their prefix, and None removes one.
"""

from __future__ import annotations

from typing import Any

Metadata = dict[str, Any]
Added = list[tuple[str, int]]

EXACT = ["spm", "bpe", "spaced", "unigram", "rwkv", "plamo", "dna"]
"""Kinds whose tiny vocabulary gives any text back as it was."""
KINDS = [*EXACT, "wordpiece", "words"]

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

# In merge order: the earlier, the sooner two neighbours become this piece.
_SPM_MERGES = ["▁▁", "he", "ll", "▁b", "▁a", "hell", "hello", "▁hello", '{"', "us", "er", "user", "▁user", "</", "s>"]
_SPM_CHARS = ["▁", *'abcdefghijklmnopqrstuvwxyz{}"<>/|_.', "é"]
_BPE_MERGES = ["h e", "l l", "he ll", "hell o", "Ġ hello", "a b", "1 2", "12 3", "4 5", "45 6", "123 456"]
_SPACED_MERGES = ["h e", "l l", "he ll", "hell o", "▁ hello", "▁ ▁", "▁▁ ▁▁", "\n \n", "a b", '{ "']
_WORD_PIECES = ["▁hello", "▁hell", "o", "▁us", "er", "▁user", "▁world", "▁naive", "▁中", "▁,", "▁!", "▁'", "▁_", "s"]
_WORD_PIECES += ["▁#", "#", "▁strasse", "▁Hello", "▁é", "ि", "▁ह"]
_UNIGRAMS = {"▁": -3.0, "▁hello": -4.0, "▁he": -5.0, "llo": -5.0, "▁user": -4.5, "hell": -5.0, "▁ab": -6.0, '{"': -6.0}


_VISIBLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
_HIDDEN = [byte for byte in range(256) if byte not in _VISIBLE]


def byte_char(byte: int) -> str:
    """The character that byte-level vocabularies write for a byte."""
    return chr(byte if byte in _VISIBLE else 256 + _HIDDEN.index(byte))


def spm_metadata(added: Added | None = None, **changes: Any) -> Metadata:
    """SentencePiece, merged by score."""
    rows: list[tuple[str, int, float]] = [("<unk>", UNKNOWN, 0.0), ("<s>", CONTROL, 0.0), ("</s>", CONTROL, 0.0)]
    rows += [(f"<0x{byte:02X}>", BYTE, 0.0) for byte in range(256)]
    rows += [(piece, NORMAL, -float(rank)) for rank, piece in enumerate(_SPM_MERGES)]
    rows += [(piece, NORMAL, -1000.0) for piece in _SPM_CHARS]
    rows += [("<SP>", CONTROL, 0.0), ("<|im_start|>", USER_DEFINED, 0.0)]
    rows += [(piece, kind, 0.0) for piece, kind in added or []]
    return _metadata(
        "llama",
        [(piece, kind) for piece, kind, _ in rows],
        {"scores": [row[2] for row in rows], "bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0},
        changes,
    )


def unigram_metadata(added: Added | None = None, **changes: Any) -> Metadata:
    """SentencePiece, the most probable pieces; white space is kept."""
    rows: list[tuple[str, int, float]] = [("<pad>", CONTROL, 0.0), ("</s>", CONTROL, 0.0), ("<unk>", UNKNOWN, 0.0)]
    rows += [(f"<0x{byte:02X}>", BYTE, 0.0) for byte in range(256)]
    rows += [(piece, NORMAL, score) for piece, score in _UNIGRAMS.items()]
    rows += [(char, NORMAL, -8.0) for char in "abehloursé"]
    rows += [("<s>", CONTROL, 0.0), ("<extra>", USER_DEFINED, 0.0)]
    rows += [(piece, kind, 0.0) for piece, kind in added or []]
    keys = {"scores": [row[2] for row in rows], "padding_token_id": 0, "eos_token_id": 1, "unknown_token_id": 2}
    return _metadata("t5", [(piece, kind) for piece, kind, _ in rows], keys, changes)


def bpe_metadata(added: Added | None = None, **changes: Any) -> Metadata:
    """Byte-level BPE."""
    rows = [(byte_char(byte), NORMAL) for byte in range(256)]
    rows += [(merge.replace(" ", ""), NORMAL) for merge in _BPE_MERGES]
    rows += [("xyz", NORMAL), ("<|bos|>", CONTROL), ("<|im_end|>", CONTROL), ("<tool>", USER_DEFINED)]
    first = 256 + len(_BPE_MERGES)
    keys = {"pre": "gpt-2", "merges": list(_BPE_MERGES), "bos_token_id": first + 1, "eos_token_id": first + 2}
    return _metadata("gpt2", rows + (added or []), keys, changes)


def spaced_metadata(added: Added | None = None, **changes: Any) -> Metadata:
    """BPE over text itself, like Gemma 4's."""
    rows = [("<pad>", CONTROL), ("<eos>", CONTROL), ("<bos>", CONTROL), ("<unk>", CONTROL)]
    rows += [(f"<0x{byte:02X}>", BYTE) for byte in range(256)]
    rows += [(char, NORMAL) for char in '▁\nabehlo{"']
    rows += [(merge.replace(" ", ""), NORMAL) for merge in _SPACED_MERGES]
    rows += [("<turn|>", CONTROL), ("<|tool>", USER_DEFINED)]
    keys = {"merges": list(_SPACED_MERGES), "bos_token_id": 2, "eos_token_id": 1, "unknown_token_id": 3}
    return _metadata("gemma4", rows + (added or []), {**keys, "add_bos_token": True}, changes)


def wordpiece_metadata(added: Added | None = None, **changes: Any) -> Metadata:
    """WordPiece, like BERT's."""
    rows = [(piece, CONTROL) for piece in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")]
    rows += [(piece, NORMAL) for piece in _WORD_PIECES]
    rows += [(piece, NORMAL) for letter in "abcd" for piece in ("▁" + letter, letter)]
    ids = {"padding": 0, "unknown": 1, "cls": 2, "seperator": 3, "mask": 4}
    keys = {f"{role}_token_id": token for role, token in ids.items()}
    return _metadata("bert", rows + (added or []), keys, changes)


def rwkv_metadata(added: Added | None = None, **changes: Any) -> Metadata:
    """RWKV's: bytes, then longer pieces, all escaped."""
    rows = [("<s>", CONTROL)]
    rows += [(repr(bytes((byte,)))[2:-1], NORMAL) for byte in range(256)]
    texts = ("\n\n", " hello", "he", "hel", "hello!", "user", "é", "中", "\\n", "'\"", "[PAD")
    rows += [(repr(text.encode())[2:-1], NORMAL) for text in texts]
    rows += [("[PAD300]", UNUSED), *(added or [])]
    return _metadata("rwkv", rows, {"bos_token_id": 0, "eos_token_id": 0, "eot_token_id": 257}, changes)


def plamo_metadata(added: Added | None = None, **changes: Any) -> Metadata:
    """PLaMo 2's: pieces by score, bytes for the rest."""
    rows: list[tuple[str, int, float]] = [(f"<|plamo:{name}|>", CONTROL, 0.0) for name in ("unk", "bos", "eos", "pad")]
    rows += [(f"<0x{byte:02X}>", BYTE, 0.0) for byte in range(256)]
    rows += [("hello", NORMAL, -5.0), ("hell", NORMAL, -3.0), ("o", NORMAL, -2.5), (" user", NORMAL, -4.0)]
    rows += [("ab", NORMAL, -4.0), ("a", NORMAL, -2.0), ("b", NORMAL, -2.0), (" ", NORMAL, -3.0)]
    rows += [(piece, kind, 0.0) for piece, kind in added or []]
    keys = {"scores": [row[2] for row in rows], "bos_token_id": 1, "eos_token_id": 2}
    return _metadata("plamo2", [(piece, kind) for piece, kind, _ in rows], keys, changes)


def words_metadata(added: Added | None = None, **changes: Any) -> Metadata:
    """BPE over the characters of words."""
    rows = [("<s>", CONTROL), ("</s>", CONTROL), ("<unk>", CONTROL)]
    rows += [(char, NORMAL) for char in "abhelo你好"]
    rows += [("你好", NORMAL), ("he", NORMAL)]
    keys = {
        "pre": "whitespace",
        "merges": ["你 好", "h e"],
        "unknown_token_id": 2,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    return _metadata("whitespace", rows + (added or []), keys, changes)


def dna_metadata(added: Added | None = None, **changes: Any) -> Metadata:
    """Byte-level BPE with DNA in it."""
    metadata = bpe_metadata(model="hybriddna")
    rows = [("<dna>", NORMAL), ("</dna>", NORMAL), ("<oov>", NORMAL)]
    rows += [(bases + "\ue000", NORMAL) for bases in ("ACGTAC", "GTAAAA", "CCCCCC")]
    for piece, kind in rows + (added or []):
        metadata["tokenizer.ggml.tokens"].append(piece)
        metadata["tokenizer.ggml.token_type"].append(kind)
    return _changed(metadata, changes)


def _metadata(model: str, rows: Added, keys: Metadata, changes: Metadata) -> Metadata:
    metadata = {
        "tokenizer.ggml.model": model,
        "tokenizer.ggml.tokens": [piece for piece, _ in rows],
        "tokenizer.ggml.token_type": [kind for _, kind in rows],
    }
    return _changed(metadata, {**keys, **changes})


def _changed(metadata: Metadata, changes: Metadata) -> Metadata:
    for key, value in changes.items():
        full = key if key.startswith("general.") else f"tokenizer.ggml.{key}"
        if value is None:
            metadata.pop(full, None)
        else:
            metadata[full] = value
    return metadata
