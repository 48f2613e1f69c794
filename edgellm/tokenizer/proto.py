"""A SentencePiece model as protobuf bytes, written without a protobuf library.

Field numbers are those of sentencepiece_model.proto: ModelProto {1: pieces, 2: trainer, 3: normalizer},
SentencePiece {1: piece, 2: score, 3: type}.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_UNIGRAM, _BPE = 1, 2
_SPAN = 1 << 14


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a model does with text. As it stands here: it takes it as it is, and merges pairs by score.

    unigram: take the most probable pieces instead of merging.
    charsmap: SentencePiece's compiled table of replacements.
    """

    unigram: bool = False
    charsmap: bytes = b""
    add_dummy_prefix: bool = False
    remove_extra_whitespaces: bool = False


def model_proto(
    pieces: list[bytes],
    scores: npt.NDArray[np.float32],
    types: npt.NDArray[np.uint8],
    byte_fallback: bool,
    recipe: Recipe,
) -> bytes:
    """The serialized model.

    pieces, scores, types: one entry per piece, in id order; the types are SentencePiece's own.
    """
    trainer = bytes((3 << 3, _UNIGRAM if recipe.unigram else _BPE)) + _varint(35 << 3) + bytes((byte_fallback,))
    # Fields 3 to 5 of the normalizer; the last one writes ▁ for spaces.
    flags = bytes((3 << 3, recipe.add_dummy_prefix, 4 << 3, recipe.remove_extra_whitespaces, 5 << 3, True))
    normalizer = _text(1, b"identity") + (_text(2, recipe.charsmap) if recipe.charsmap else b"") + flags
    tail = _text(2, trainer) + _text(3, normalizer)
    # In parts, because a few temporary arrays of all pieces would be larger than the model.
    spans = (slice(start, start + _SPAN) for start in range(0, len(pieces), _SPAN))
    return b"".join([*(_records(pieces[span], scores[span], types[span]) for span in spans), tail])


def _text(field: int, value: bytes) -> bytes:
    return bytes((field << 3 | 2,)) + _varint(len(value)) + value


def _records(pieces: list[bytes], scores: npt.NDArray[np.float32], types: npt.NDArray[np.uint8]) -> bytes:
    """Piece records, ``0A size (0A length text) (15 score) (18 type)``, filled in column by column."""
    n = len(pieces)
    lengths = np.fromiter(map(len, pieces), np.int64, n)
    # Lengths are written in one byte where all fit, and otherwise all in five, zero-padded, as varints may be.
    width = 1 if lengths.max() < 100 else 5
    body = lengths + width + 8
    end = np.cumsum(body + width + 1)
    start = end - body - width - 1
    out = np.empty(int(end[-1]), np.uint8)
    is_text = np.ones(out.size, np.bool_)

    def put(at: npt.NDArray[np.int64], value: npt.NDArray[np.uint8] | int) -> None:
        out[at] = value
        is_text[at] = False

    def put_varint(at: npt.NDArray[np.int64], value: npt.NDArray[np.int64]) -> None:
        for k in range(width):
            more = 0x80 if k < width - 1 else 0
            put(at + k, ((value >> (7 * k) & 0x7F) | more).astype(np.uint8))

    put(start, 0x0A)
    put_varint(start + 1, body)
    put(start + 1 + width, 0x0A)
    put_varint(start + 2 + width, lengths)
    put(end - 7, 0x15)
    score_bytes = scores.astype("<f4").view(np.uint8).reshape(n, 4)
    for k in range(4):
        put(end - 6 + k, score_bytes[:, k])
    put(end - 2, 0x18)
    put(end - 1, types)
    out[is_text] = np.frombuffer(b"".join(pieces), np.uint8)
    return out.tobytes()


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
