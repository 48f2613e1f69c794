"""Byte-level BPE vocabularies (``tokenizer.ggml.model`` is ``gpt2``), on the ``tokenizers`` library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgellm.tokenizer.base import Tokenizer
from edgellm.tokenizer.fields import Fields
from edgellm.tokenizer.merges import encodable, read_model
from edgellm.tokenizer.pretokenizers import Rule
from edgellm.tokenizer.special import read_specials
from edgellm.tokenizer.vocabulary import read_vocabulary

if TYPE_CHECKING:
    from tokenizers import Tokenizer as BpeEncoder


def _byte_alphabet() -> dict[str, int]:
    """The printable character that stands for each byte: itself where it is visible, else one from U+0100 on."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(0x100 + k): byte for k, byte in enumerate(hidden)}


_BYTES = _byte_alphabet()


class BpeTokenizer(Tokenizer):
    """Encodes with merges over bytes.

    Raises:
        ModelFormatError: the vocabulary contradicts itself or cannot be used.
    """

    def __init__(self, fields: Fields, rule: Rule) -> None:
        vocabulary, pieces = read_vocabulary(fields)
        super().__init__(fields, vocabulary, read_specials(fields, vocabulary, add_bos=rule.add_bos, defaults={}))
        ids = encodable(vocabulary, pieces)
        # Bytes without a token of their own, which the library would drop without a word.
        self._missing = frozenset(byte for char, byte in _BYTES.items() if char not in ids)
        self._encoder = self._build(fields, rule, ids)

    def _build(self, fields: Fields, rule: Rule, ids: dict[str, int]) -> BpeEncoder:
        from tokenizers import Regex
        from tokenizers import Tokenizer as BpeEncoder
        from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

        unknown = None
        if self._missing and self.unk_id is not None:
            unknown = self.piece(self.unk_id)
            ids.setdefault(unknown, self.unk_id)
        encoder = BpeEncoder(
            read_model(fields, self._vocabulary, ids, unk_token=unknown, ignore_merges=rule.whole_words)
        )
        splits = [Split(Regex(pattern), behavior="isolated") for pattern in rule.patterns]
        encoder.pre_tokenizer = Sequence([*splits, ByteLevel(add_prefix_space=False, use_regex=False)])
        return encoder

    def _encode_text(self, text: str, fresh: bool) -> list[int]:
        ids: list[int] = self._encoder.encode(text, add_special_tokens=False).ids
        if self._missing and self.unk_id is None:
            data = text.encode()
            if not self._missing.isdisjoint(data) and b"".join(map(self.token_bytes, ids)) != data:
                raise self._no_tokens(text)
        return ids

    def _decode_piece(self, piece: bytes) -> bytes:
        try:
            return bytes([_BYTES[char] for char in piece.decode()])
        except (KeyError, UnicodeDecodeError):
            # A token that was added to the vocabulary as plain text.
            return piece
