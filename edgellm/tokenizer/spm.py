"""SentencePiece vocabularies (``tokenizer.ggml.model`` is ``llama``): pieces merged in the order of their scores.

The merging is SentencePiece's own; special tokens and the dummy prefix are handled here, because SentencePiece
knows nothing of a text that continues after a control token.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from edgellm.errors import VocabularyError
from edgellm.tokenizer.base import Tokenizer
from edgellm.tokenizer.fields import Fields
from edgellm.tokenizer.proto import model_proto
from edgellm.tokenizer.special import read_specials
from edgellm.tokenizer.vocabulary import TokenType, Vocabulary, byte_value, read_vocabulary

_SPACE = "▁".encode()
_DEFAULTS = {"unk": (0, b"<unk>"), "bos": (1, b"<s>"), "eos": (2, b"</s>")}


class SpmTokenizer(Tokenizer):
    """Encodes with SentencePiece.

    Raises:
        ModelFormatError: the vocabulary contradicts itself or cannot be used.
    """

    def __init__(self, fields: Fields) -> None:
        vocabulary, pieces = read_vocabulary(fields)
        specials = read_specials(fields, vocabulary, add_bos=True, defaults=_DEFAULTS)
        super().__init__(fields, vocabulary, specials)
        self._space_prefix = fields.flag("add_space_prefix", True)
        self._stripping = _stripping_tokens(fields, vocabulary)
        # Ids from n_vocab on exist only inside the processor; each stands for a real token, or for none.
        self._stand_ins: dict[int, int | None] = {}
        scores = _read_scores(fields, len(pieces))
        proto = self._model_proto(pieces, scores)
        # A quarter of a million objects, not needed while SentencePiece builds its own.
        del pieces
        try:
            self._processor = _load(proto)
        except RuntimeError:
            self._processor = self._load_mended(fields, scores)

    def _load_mended(self, fields: Fields, scores: npt.NDArray[np.float32]) -> Any:
        """Load once more, without the pieces that SentencePiece refuses."""
        pieces = [self._vocabulary.piece(token) for token in range(self.n_vocab)]
        refused = _refused(pieces)
        try:
            processor = _load(self._model_proto(pieces, scores, refused))
        except RuntimeError as exc:
            raise fields.error("tokens", f"cannot be used as a SentencePiece vocabulary: {exc}") from exc
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
        return model_proto(pieces, scores, types, byte_fallback=n_bytes > 0)

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
        if fresh and self._space_prefix:
            text = " " + text
        ids: list[int] = self._processor.EncodeAsIds(text)
        if self._stand_ins and max(ids, default=0) >= self.n_vocab:
            return [self._real(token, text) for token in ids]
        return ids

    def _real(self, token: int, text: str) -> int:
        real = self._stand_ins.get(token, token)
        if real is None:
            raise VocabularyError(
                f"{self._name}: the vocabulary has no token for a character in {text[:40]!r}, "
                "and neither byte tokens nor an unknown token to fall back to"
            )
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


def _read_scores(fields: Fields, n_tokens: int) -> npt.NDArray[np.float32]:
    scores = fields.numbers("scores", n_tokens, "iuf")
    if scores is None:
        # SentencePiece trains byte-pair vocabularies in merge order, so the id is the rank.
        fields.warn("scores", "is missing; pieces are merged in the order of their ids")
        return -np.arange(n_tokens, dtype=np.float32)
    bad = np.flatnonzero(np.isnan(scores))
    if bad.size:
        raise fields.error("scores", f"gives token {bad[0]} the score NaN")
    return scores.astype(np.float32)


def _stripping_tokens(fields: Fields, vocabulary: Vocabulary) -> frozenset[int]:
    """Phi-3's markers swallow the white space after them. The format has no key for that, only the model's name."""
    metadata = fields.metadata
    name = str(metadata.get("general.name", "")).lower()
    if metadata.get("general.architecture") != "phi3" and "phi-3" not in name and "phi3" not in name:
        return frozenset()
    tokens = vocabulary.ids_of_type(TokenType.CONTROL, TokenType.USER_DEFINED)
    keep = (b"<unk>", b"<s>", b"<|endoftext|>")
    return frozenset(token for token in tokens if vocabulary.piece(token) not in keep)


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
