"""Byte-level BPE with DNA in it (``tokenizer.ggml.model`` is ``hybriddna``): six bases a token between two tags."""

from __future__ import annotations

import re

from edgellm.tokenizer.bpe import BpeTokenizer
from edgellm.tokenizer.fields import Fields
from edgellm.tokenizer.pretokenizers import Rule
from edgellm.tokenizer.vocabulary import TokenType

# What the file appends to tokens of bases, so that they differ from equal text.
_MARK = "\ue000".encode()
_BASES = 6
_TAGGED = re.compile(r"<dna>(.*?)(</dna>|\Z)", re.DOTALL)


class HybridDnaTokenizer(BpeTokenizer):
    """Encodes what lies between ``<dna>`` and ``</dna>`` by sixes, the last one filled up with A; the rest as BPE.

    Raises:
        ModelFormatError: the vocabulary contradicts itself or cannot be used.
    """

    def __init__(self, fields: Fields, rule: Rule) -> None:
        super().__init__(fields, rule)
        self._tags = [self.id_of(text) for text in ("<dna>", "</dna>", "<oov>")]
        for tag in self._tags:
            if tag is not None:
                # A tag that is split off first would leave its bases to the merges.
                self._vocabulary.set_type(tag, TokenType.NORMAL)
        pieces = ((token, self._vocabulary.piece(token)) for token in range(self.n_vocab))
        self._sixes = {piece[: -len(_MARK)]: token for token, piece in pieces if piece.endswith(_MARK)}

    def _encode_text(self, text: str, fresh: bool) -> list[int]:
        begin, end, odd = self._tags
        if begin is None or end is None or odd is None:
            return super()._encode_text(text, fresh)
        ids: list[int] = []
        place = 0
        for found in _TAGGED.finditer(text):
            ids += super()._encode_text(text[place : found.start()], fresh)
            ids.append(begin)
            bases = found[1].encode().upper()
            bases += b"A" * (-len(bases) % _BASES)
            ids += (self._sixes.get(bases[at : at + _BASES], odd) for at in range(0, len(bases), _BASES))
            if found[2]:
                ids.append(end)
            place = found.end()
        return ids + super()._encode_text(text[place:], fresh)

    def _decode_piece(self, piece: bytes) -> bytes:
        return super()._decode_piece(piece.removesuffix(_MARK))
