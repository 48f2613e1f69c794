"""RWKV's vocabularies (``tokenizer.ggml.model`` is ``rwkv``): at each place the longest piece, over bytes."""

from __future__ import annotations

import re

from edgellm.tokenizer.base import Tokenizer
from edgellm.tokenizer.fields import Fields
from edgellm.tokenizer.prefixes import Prefixes
from edgellm.tokenizer.special import read_specials
from edgellm.tokenizer.vocabulary import TokenType, read_vocabulary

_ESCAPE = re.compile(rb"\\(x[0-9A-Fa-f]{2}|.)", re.DOTALL)
_NAMED = {b"t": b"\t", b"n": b"\n", b"r": b"\r"}
_NEVER = (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED, TokenType.UNUSED)


class RwkvTokenizer(Tokenizer):
    """Encodes by a trie. Pieces are any bytes, written with escapes such as ``\\xff`` and ``\\n``.

    Raises:
        ModelFormatError: the vocabulary contradicts itself.
    """

    def __init__(self, fields: Fields) -> None:
        vocabulary, pieces = read_vocabulary(fields)
        super().__init__(fields, vocabulary, read_specials(fields, vocabulary, add_bos=False, defaults={}))
        never = frozenset(vocabulary.ids_of_type(*_NEVER))
        self._ids: dict[bytes, int] = {}
        for token, piece in enumerate(pieces):
            if token not in never:
                self._ids.setdefault(_unescape(piece), token)
        self._prefixes = Prefixes(self._ids)

    def _encode_text(self, text: str, fresh: bool) -> list[int]:
        data = text.encode()
        ids = []
        place = 0
        while place < len(data):
            for length in self._prefixes.lengths(data, place):
                token = self._ids.get(data[place : place + length])
                if token is not None:
                    break
            else:
                length, token = 1, self.unk_id
            if token is None:
                raise self._no_tokens(text)
            ids.append(token)
            place += length
        return ids

    def _decode_piece(self, piece: bytes) -> bytes:
        return _unescape(piece)


def _unescape(piece: bytes) -> bytes:
    return _ESCAPE.sub(_escaped, piece) if b"\\" in piece else piece


def _escaped(found: re.Match[bytes]) -> bytes:
    what = found[1]
    return bytes((int(what[1:], 16),)) if len(what) == 3 else _NAMED.get(what, what)
