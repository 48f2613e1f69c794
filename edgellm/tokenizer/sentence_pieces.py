"""What SentencePiece vocabularies share: the library's own encoder, built from a GGUF file's pieces and scores.

The library insists on more than files have, so pieces are mended or stood in for where that does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from edgellm.errors import ModelFormatError
from edgellm.tokenizer.base import Tokenizer
from edgellm.tokenizer.fields import Fields
from edgellm.tokenizer.proto import Recipe, model_proto
from edgellm.tokenizer.special import Specials
from edgellm.tokenizer.vocabulary import TokenType, Vocabulary, byte_value

_SPACE = "▁".encode()
# SentencePiece's errors; UnicodeDecodeError where it cannot even be said what is wrong.
_REFUSALS = (RuntimeError, UnicodeDecodeError)


class SentencePieceTokenizer(Tokenizer):
    """Encodes with SentencePiece.

    pieces: the vocabulary's texts; emptied to save memory.
    scores: one per piece.

    Raises:
        ModelFormatError: SentencePiece refuses the vocabulary.
    """

    def __init__(
        self,
        fields: Fields,
        vocabulary: Vocabulary,
        specials: Specials,
        pieces: list[bytes],
        scores: npt.NDArray[np.float32],
        recipe: Recipe,
    ) -> None:
        super().__init__(fields, vocabulary, specials)
        self._recipe = recipe
        # Ids from n_vocab on exist only inside the processor; each stands for a real token, or for none.
        self._stand_ins: dict[int, int | None] = {}
        proto = self._model_proto(pieces, scores)
        # A quarter of a million objects, not needed while SentencePiece builds its own.
        pieces.clear()
        try:
            self._processor = _load(proto)
        except _REFUSALS:
            self._processor = self._load_mended(fields, scores)

    def _load_mended(self, fields: Fields, scores: npt.NDArray[np.float32]) -> Any:
        """Load once more, without the pieces that SentencePiece refuses."""
        pieces = [self._vocabulary.piece(token) for token in range(self.n_vocab)]
        refused = _refused(pieces)
        try:
            processor = _load(self._model_proto(pieces, scores, refused))
        except _REFUSALS as exc:
            raise ModelFormatError(f"{fields.name}: SentencePiece refuses the vocabulary: {exc}") from exc
        fields.warn("tokens", f"has {len(refused)} tokens that are empty, hold NUL or repeat another; never encoded to")
        return processor

    def _model_proto(self, pieces: list[bytes], scores: npt.NDArray[np.float32], refused: Iterable[int] = ()) -> bytes:
        types = self._vocabulary.types
        types[types == TokenType.UNDEFINED] = TokenType.NORMAL
        # Found in the text before the processor sees it, and never inside of plain text.
        types[types == TokenType.USER_DEFINED] = TokenType.CONTROL
        _keep_one_unknown(types)
        n_bytes = _name_bytes(pieces, types)
        for token in refused:
            types[token], pieces[token] = TokenType.CONTROL, _unused_name(token)
        extra = self._add_stand_ins(pieces, types, n_bytes)
        scores = np.append(scores, np.zeros(len(extra), np.float32))
        types = np.append(types, np.array(extra, np.uint8))
        return model_proto(pieces, scores, types, n_bytes > 0, self._recipe)

    def _add_stand_ins(self, pieces: list[bytes], types: npt.NDArray[np.uint8], n_bytes: int) -> list[TokenType]:
        """Append what SentencePiece insists on and the file lacks: an unknown token, and all 256 bytes or none."""
        extra: list[TokenType] = []
        if not (types == TokenType.UNKNOWN).any():
            self._stand_ins[len(pieces)] = self.unk_id
            pieces.append(_unused_name(len(pieces)))
            extra.append(TokenType.UNKNOWN)
        if 0 < n_bytes < 256:
            named = {pieces[token] for token in np.flatnonzero(types == TokenType.BYTE)}
            for byte in range(256):
                piece = b"<0x%02X>" % byte
                if piece not in named:
                    raw = self._vocabulary.find(bytes((byte,)))
                    self._stand_ins[len(pieces)] = self.unk_id if raw is None else raw
                    pieces.append(piece)
                    extra.append(TokenType.BYTE)
        return extra

    def _encode_text(self, text: str, fresh: bool) -> list[int]:
        ids: list[int] = self._processor.EncodeAsIds(text)
        if self._stand_ins and max(ids, default=0) >= self.n_vocab:
            return [self._real(token, text) for token in ids]
        return ids

    def _real(self, token: int, text: str) -> int:
        real = self._stand_ins.get(token, token)
        if real is None:
            raise self._no_tokens(text)
        return real

    def _decode_piece(self, piece: bytes) -> bytes:
        return piece.replace(_SPACE, b" ")

    def _decode_byte(self, piece: bytes) -> bytes:
        value = byte_value(piece)
        return self._decode_piece(piece) if value is None else bytes((value,))


def _load(proto: bytes) -> Any:
    from sentencepiece import SentencePieceProcessor

    processor = SentencePieceProcessor()
    processor.LoadFromSerializedProto(proto)
    return processor


def _keep_one_unknown(types: npt.NDArray[np.uint8]) -> None:
    types[np.flatnonzero(types == TokenType.UNKNOWN)[1:]] = TokenType.CONTROL


def _name_bytes(pieces: list[bytes], types: npt.NDArray[np.uint8]) -> int:
    """Spell byte tokens as SentencePiece looks for them; return how many bytes have a token."""
    seen: set[int] = set()
    for token in np.flatnonzero(types == TokenType.BYTE).tolist():
        value = byte_value(pieces[token])
        if value is None:
            types[token] = TokenType.NORMAL
        elif value in seen:
            types[token], pieces[token] = TokenType.CONTROL, _unused_name(token)
        else:
            seen.add(value)
            pieces[token] = b"<0x%02X>" % value
    return len(seen)


def _refused(pieces: list[bytes]) -> list[int]:
    """Tokens whose spelling SentencePiece does not take."""
    names = {b""}
    refused = []
    for token, piece in enumerate(pieces):
        if piece in names or b"\0" in piece:
            refused.append(token)
        names.add(piece)
    return refused


def _unused_name(token: int) -> bytes:
    """A piece that is in no vocabulary: the last code point, which is no character, and a number."""
    return "\U0010ffff".encode() + b"%d" % token
