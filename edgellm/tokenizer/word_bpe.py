"""BPE over the characters of words (``tokenizer.ggml.model`` is ``whitespace``): Jina's Chinese vocabulary."""

from __future__ import annotations

from edgellm.tokenizer.base import Tokenizer
from edgellm.tokenizer.fields import Fields
from edgellm.tokenizer.merges import encodable, read_model
from edgellm.tokenizer.special import read_specials
from edgellm.tokenizer.vocabulary import read_vocabulary

# What the library calls a character without tokens.
_UNKNOWN = "\U0010ffff?"


class WordBpeTokenizer(Tokenizer):
    """Encodes words with merges over their characters. White space is lost, and case where the file says so.

    Raises:
        ModelFormatError: the vocabulary contradicts itself or cannot be used.
    """

    def __init__(self, fields: Fields) -> None:
        from tokenizers import Tokenizer as BpeEncoder
        from tokenizers.normalizers import Lowercase
        from tokenizers.pre_tokenizers import WhitespaceSplit

        vocabulary, pieces = read_vocabulary(fields)
        super().__init__(fields, vocabulary, read_specials(fields, vocabulary, add_bos=False, defaults={}))
        ids = encodable(vocabulary, pieces)
        ids[_UNKNOWN] = self.n_vocab if self.unk_id is None else self.unk_id
        self._encoder = BpeEncoder(read_model(fields, vocabulary, ids, unk_token=_UNKNOWN))
        self._encoder.pre_tokenizer = WhitespaceSplit()
        if fields.flag("normalizer.lowercase", False):
            self._encoder.normalizer = Lowercase()

    def _encode_text(self, text: str, fresh: bool) -> list[int]:
        ids: list[int] = self._encoder.encode(text, add_special_tokens=False).ids
        if self.unk_id is None and self.n_vocab in ids:
            raise self._no_tokens(text)
        return ids

    def _decode_piece(self, piece: bytes) -> bytes:
        return piece
