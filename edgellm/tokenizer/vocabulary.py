"""The pieces of a vocabulary, kept as one block of bytes instead of a quarter of a million objects."""

from __future__ import annotations

import re
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from edgellm.tokenizer.fields import Fields


class TokenType(IntEnum):
    """Values of ``tokenizer.ggml.token_type``."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_BYTE_PIECE = re.compile(rb"<0x([0-9A-Fa-f]{2})>")


def byte_value(piece: bytes) -> int | None:
    """The byte that a piece such as ``<0x0A>`` stands for, or None for any other text."""
    found = _BYTE_PIECE.fullmatch(piece)
    return int(found[1], 16) if found else None


class Vocabulary:
    """Pieces with their types. Token ``i``'s text is ``blob[offsets[i]:offsets[i + 1]]``.

    types: one :class:`TokenType` per token.
    """

    def __init__(self, pieces: list[bytes], types: npt.NDArray[np.uint8]) -> None:
        n = len(pieces)
        self.blob = b"".join(pieces)
        self.offsets: npt.NDArray[np.int64] = np.zeros(n + 1, np.int64)
        np.cumsum(np.fromiter(map(len, pieces), np.int64, n), out=self.offsets[1:])
        self._types = bytearray(types.tobytes())

    def __len__(self) -> int:
        return len(self._types)

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Bytes in each piece."""
        return np.diff(self.offsets)

    @property
    def types(self) -> npt.NDArray[np.uint8]:
        """A copy of all token types."""
        return np.array(self._types, np.uint8)

    def type_of(self, token: int) -> int:
        """The type of one token."""
        return self._types[token]

    def set_type(self, token: int, kind: TokenType) -> None:
        """Correct the type the file gave to one token."""
        self._types[token] = kind

    def piece(self, token: int) -> bytes:
        """The text of one token, as the file has it."""
        return self.blob[self.offsets[token] : self.offsets[token + 1]]

    def ids_of_type(self, *kinds: TokenType) -> list[int]:
        """All ids with one of the types, ascending."""
        found: list[int] = np.flatnonzero(np.isin(self.types, kinds)).tolist()
        return found

    def find(self, piece: bytes, among: npt.NDArray[np.int64] | None = None) -> int | None:
        """The lowest id whose text is ``piece``; ``among`` limits the search to these ids."""
        if among is None:
            same = np.flatnonzero(self.lengths == len(piece))
        else:
            same = among[self.offsets[among + 1] - self.offsets[among] == len(piece)]
        data = np.frombuffer(self.blob, np.uint8)
        for k, byte in enumerate(piece):
            if not same.size:
                return None
            same = same[data[self.offsets[same] + k] == byte]
        return int(same[0]) if same.size else None


def read_vocabulary(fields: Fields) -> tuple[Vocabulary, list[bytes]]:
    """Read and check tokens and their types. The list of pieces is for building the encoder, then dropped.

    Raises:
        ModelFormatError: tokens are missing, empty or not strings, or the types do not fit them.
    """
    pieces = fields.strings("tokens")
    if not pieces:
        raise fields.error("tokens", "is missing or empty")
    types = fields.numbers("token_type", len(pieces), "iu")
    if types is None:
        types = _guess_types(pieces)
    elif types.min() < 0 or types.max() > max(TokenType):
        token = int(np.flatnonzero((types < 0) | (types > max(TokenType)))[0])
        raise fields.error("token_type", f"gives token {token} the unknown type {types[token]}")
    return Vocabulary(pieces, types.astype(np.uint8)), pieces


def _guess_types(pieces: list[bytes]) -> npt.NDArray[np.uint8]:
    """Types for a file without them, from the spellings that SentencePiece itself uses."""
    types = np.full(len(pieces), TokenType.NORMAL, np.uint8)
    known = {b"<unk>": TokenType.UNKNOWN, b"<s>": TokenType.CONTROL, b"</s>": TokenType.CONTROL}
    for token, piece in enumerate(pieces):
        if piece.startswith(b"<"):
            types[token] = TokenType.BYTE if byte_value(piece) is not None else known.get(piece, TokenType.NORMAL)
    return types
