"""WordPiece vocabularies of BERT (``tokenizer.ggml.model`` is ``bert``), on the ``tokenizers`` library.

The format spells the start of a word ``▁word`` and its continuation ``piece``, where BERT has ``word`` and
``##piece``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from edgellm.tokenizer.base import Tokenizer
from edgellm.tokenizer.fields import Fields
from edgellm.tokenizer.special import read_specials
from edgellm.tokenizer.vocabulary import TokenType, Vocabulary, read_vocabulary

if TYPE_CHECKING:
    from tokenizers import Tokenizer as WordPieceEncoder

_SPACE = "▁"
_DEFAULTS = {
    "bos": (101, b"[CLS]"),
    "sep": (102, b"[SEP]"),
    "unk": (100, b"[UNK]"),
    "pad": (0, b"[PAD]"),
    "mask": (103, b"[MASK]"),
}
# What the library sees before a continuation, and as its unknown token: no text has this code point after clean-up.
_CONTINUES = "\U0010ffff"
_UNKNOWN = "\U0010ffff\U0010ffff"
# BERT's own: a longer word is unknown as a whole.
_LONGEST_WORD = 100


class WordPieceTokenizer(Tokenizer):
    """Encodes words, lower-cased and without accents unless the file says otherwise, by their longest pieces.

    Text does not come back as it was: decoding joins words with single spaces.

    Raises:
        ModelFormatError: the vocabulary contradicts itself.
    """

    def __init__(self, fields: Fields) -> None:
        vocabulary, pieces = read_vocabulary(fields)
        specials = read_specials(fields, vocabulary, add_bos=True, defaults=_DEFAULTS)
        # A text is [CLS] … [SEP], whatever flags a converter left in the file.
        last = specials.eos if specials.sep is None else specials.sep
        specials = replace(specials, eos=last, add_bos=specials.bos is not None, add_eos=last is not None)
        super().__init__(fields, vocabulary, specials)
        self._space_prefix = True
        ids = _encodable(vocabulary, pieces)
        # Without an unknown token, an id that is in no vocabulary, to be told from all others.
        ids[_UNKNOWN] = self.n_vocab if self.unk_id is None else self.unk_id
        self._encoder = _build(fields, ids)

    def _encode_text(self, text: str, fresh: bool) -> list[int]:
        ids: list[int] = self._encoder.encode(text, add_special_tokens=False).ids
        if self.unk_id is None and self.n_vocab in ids:
            raise self._no_tokens(text)
        return ids

    def _decode_piece(self, piece: bytes) -> bytes:
        return piece.replace(_SPACE.encode(), b" ")


def _encodable(vocabulary: Vocabulary, pieces: list[bytes]) -> dict[str, int]:
    """The library's spelling → id, of all tokens that plain text may encode to: the first of each spelling."""
    hidden = set(vocabulary.ids_of_type(TokenType.CONTROL, TokenType.UNKNOWN))
    ids: dict[str, int] = {}
    for token, piece in enumerate(pieces):
        text = piece.decode("utf-8", "replace")
        if token not in hidden and text not in ("", _SPACE):
            ids.setdefault(text[1:] if text.startswith(_SPACE) else _CONTINUES + text, token)
    return ids


def _build(fields: Fields, ids: dict[str, int]) -> WordPieceEncoder:
    from tokenizers import Tokenizer as WordPieceEncoder
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer

    lowercase = fields.flag("normalizer.lowercase", True)
    encoder = WordPieceEncoder(
        WordPiece(
            vocab=ids,
            unk_token=_UNKNOWN,
            max_input_chars_per_word=_LONGEST_WORD,
            continuing_subword_prefix=_CONTINUES,
        )
    )
    encoder.normalizer = BertNormalizer(
        lowercase=lowercase, strip_accents=fields.flag("normalizer.strip_accents", lowercase)
    )
    encoder.pre_tokenizer = BertPreTokenizer()
    return encoder
