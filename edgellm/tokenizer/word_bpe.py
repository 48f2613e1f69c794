"""BPE over the characters of words (``tokenizer.ggml.model`` is ``whitespace``): Jina's Chinese vocabulary."""

from __future__ import annotations

from edgellm.tokenizer.base import Tokenizer
from edgellm.tokenizer.fields import Fields
from edgellm.tokenizer.merges import Merges
from edgellm.tokenizer.special import read_specials
from edgellm.tokenizer.vocabulary import read_vocabulary
from edgellm.tokenizer.words import WordCache


class WordBpeTokenizer(Tokenizer):
    """Encodes words with merges over their characters. White space is lost, and case where the file says so.

    Raises:
        ModelFormatError: the vocabulary contradicts itself or cannot be used.
    """

    def __init__(self, fields: Fields) -> None:
        vocabulary, pieces = read_vocabulary(fields)
        super().__init__(fields, vocabulary, read_specials(fields, vocabulary, add_bos=False, defaults={}))
        self._merges = Merges(fields, vocabulary, pieces)
        self._lowercase = fields.flag("normalizer.lowercase", False)
        self._words = WordCache(self._encode_word)

    def _encode_text(self, text: str, fresh: bool) -> list[int]:
        return self._words.encode((text.lower() if self._lowercase else text).split())

    def _encode_word(self, word: str) -> list[int]:
        found = []
        for part in self._merges.apply([char.encode() for char in word]):
            token = self._merges.ids.get(part, self.unk_id)
            if token is None:
                raise self._no_tokens(word)
            found.append(token)
        return found

    def _decode_piece(self, piece: bytes) -> bytes:
        return piece
