"""Byte-level BPE vocabularies (``tokenizer.ggml.model`` is ``gpt2``): the ``tokenizers`` library cuts, we merge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgellm.tokenizer.base import Tokenizer
from edgellm.tokenizer.fields import Fields
from edgellm.tokenizer.merges import Merges
from edgellm.tokenizer.pretokenizers import Rule
from edgellm.tokenizer.special import read_specials
from edgellm.tokenizer.vocabulary import read_vocabulary
from edgellm.tokenizer.words import WordCache

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer


def _byte_alphabet() -> dict[str, int]:
    """The printable character that stands for each byte: itself where it is visible, else one from U+0100 on."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(0x100 + k): byte for k, byte in enumerate(hidden)}


_BYTES = _byte_alphabet()
_SPELLED = [char.encode() for char in sorted(_BYTES, key=lambda char: _BYTES[char])]


class BpeTokenizer(Tokenizer):
    """Encodes with merges over bytes.

    Raises:
        ModelFormatError: the vocabulary contradicts itself or cannot be used.
    """

    def __init__(self, fields: Fields, rule: Rule) -> None:
        vocabulary, pieces = read_vocabulary(fields)
        super().__init__(fields, vocabulary, read_specials(fields, vocabulary, add_bos=rule.add_bos, defaults={}))
        self._merges = Merges(fields, vocabulary, pieces)
        self._whole_words = rule.whole_words
        self._splitter = _splitter(rule)
        self._words = WordCache(self._encode_word)

    def _encode_text(self, text: str, fresh: bool) -> list[int]:
        return self._words.encode(word for word, _ in self._splitter.pre_tokenize_str(text))

    def _encode_word(self, word: str) -> list[int]:
        parts = [_SPELLED[byte] for byte in word.encode()]
        ids = self._merges.ids
        if self._whole_words and (whole := ids.get(b"".join(parts))) is not None:
            return [whole]
        found = []
        for part in self._merges.apply(parts):
            token = ids.get(part, self.unk_id)
            if token is None:
                raise self._no_tokens(word)
            found.append(token)
        return found

    def _decode_piece(self, piece: bytes) -> bytes:
        try:
            return bytes([_BYTES[char] for char in piece.decode()])
        except (KeyError, UnicodeDecodeError):
            # A token that was added to the vocabulary as plain text.
            return piece


def _splitter(rule: Rule) -> PreTokenizer:
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import Sequence, Split

    return Sequence([Split(Regex(pattern), behavior="isolated") for pattern in rule.patterns])
