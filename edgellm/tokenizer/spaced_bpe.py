"""BPE vocabularies whose merges run over text itself, ▁ for spaces, with byte tokens to fall back to: Gemma 4, Sarvam.

Where SentencePiece vocabularies have scores, these have the merges that follow from them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from edgellm.tokenizer.base import Tokenizer
from edgellm.tokenizer.fields import Fields
from edgellm.tokenizer.merges import encodable, read_model
from edgellm.tokenizer.pretokenizers import Rule
from edgellm.tokenizer.special import read_specials
from edgellm.tokenizer.vocabulary import TokenType, byte_value, read_vocabulary

if TYPE_CHECKING:
    from tokenizers import Tokenizer as BpeEncoder

_SPACE = "▁"
# What the library calls a character without tokens.
_UNKNOWN = "\U0010ffff?"


class SpacedBpeTokenizer(Tokenizer):
    """Encodes with merges over whole texts.

    Raises:
        ModelFormatError: the vocabulary contradicts itself or cannot be used.
    """

    def __init__(self, fields: Fields, rule: Rule) -> None:
        vocabulary, pieces = read_vocabulary(fields)
        specials = read_specials(fields, vocabulary, add_bos=rule.add_bos, defaults={})
        if rule.add_bos:
            # Early files of Gemma 4 say that it wants no BOS, and it writes nonsense without.
            specials = replace(specials, add_bos=specials.bos is not None)
        super().__init__(fields, vocabulary, specials)
        ids = encodable(vocabulary, pieces)
        has_bytes = bool(vocabulary.ids_of_type(TokenType.BYTE))
        ids[_UNKNOWN] = self.n_vocab if self.unk_id is None else self.unk_id
        self._encoder = self._build(fields, ids, has_bytes)

    def _build(self, fields: Fields, ids: dict[str, int], byte_fallback: bool) -> BpeEncoder:
        from tokenizers import Tokenizer as BpeEncoder

        options = {"unk_token": _UNKNOWN, "fuse_unk": True, "byte_fallback": byte_fallback}
        return BpeEncoder(read_model(fields, self._vocabulary, ids, **options))

    def _encode_text(self, text: str, fresh: bool) -> list[int]:
        ids: list[int] = self._encoder.encode(text.replace(" ", _SPACE), add_special_tokens=False).ids
        if self.unk_id is None and self.n_vocab in ids:
            raise self._no_tokens(text)
        return ids

    def _decode_piece(self, piece: bytes) -> bytes:
        return piece.replace(_SPACE.encode(), b" ")

    def _decode_byte(self, piece: bytes) -> bytes:
        value = byte_value(piece)
        return self._decode_piece(piece) if value is None else bytes((value,))
