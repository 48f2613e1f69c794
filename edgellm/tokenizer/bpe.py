"""Byte-level BPE vocabularies (``tokenizer.ggml.model`` is ``gpt2``), on the ``tokenizers`` library."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from edgellm.errors import UnsupportedModelError, VocabularyError
from edgellm.tokenizer.base import Tokenizer
from edgellm.tokenizer.fields import PREFIX, Fields
from edgellm.tokenizer.pretokenizers import RULES, Rule
from edgellm.tokenizer.special import read_specials
from edgellm.tokenizer.vocabulary import TokenType, Vocabulary, read_vocabulary

if TYPE_CHECKING:
    from tokenizers import Tokenizer as BpeEncoder
    from tokenizers.models import BPE


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
        UnsupportedModelError: the pre-tokenizer is unknown.
    """

    def __init__(self, fields: Fields) -> None:
        rule = _read_rule(fields)
        vocabulary, pieces = read_vocabulary(fields)
        specials = read_specials(fields, vocabulary, add_bos=rule.add_bos, defaults={})
        super().__init__(fields, vocabulary, specials)
        ids = _encodable(vocabulary, pieces)
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
        encoder = BpeEncoder(_read_model(fields, ids, unknown, rule.whole_words))
        splits = [Split(Regex(pattern), behavior="isolated") for pattern in rule.patterns]
        encoder.pre_tokenizer = Sequence([*splits, ByteLevel(add_prefix_space=False, use_regex=False)])
        return encoder

    def _encode_text(self, text: str, fresh: bool) -> list[int]:
        ids: list[int] = self._encoder.encode(text, add_special_tokens=False).ids
        if self._missing and self.unk_id is None:
            data = text.encode()
            if not self._missing.isdisjoint(data) and b"".join(map(self.token_bytes, ids)) != data:
                raise VocabularyError(
                    f"{self._name}: the vocabulary has no token for a byte in {text[:40]!r}, and no unknown token"
                )
        return ids

    def _decode_piece(self, piece: bytes) -> bytes:
        try:
            return bytes([_BYTES[char] for char in piece.decode()])
        except (KeyError, UnicodeDecodeError):
            # A token that was added to the vocabulary as plain text.
            return piece


def _read_rule(fields: Fields) -> Rule:
    name = fields.text("pre")
    if name is None:
        fields.warn("pre", "is missing; the default rule cuts words, which may not be the model's own")
        name = "default"
    if name not in RULES:
        raise UnsupportedModelError(f"{fields.name}: {PREFIX}pre is {name!r}, a pre-tokenizer EdgeLLM does not know")
    return RULES[name]


def _encodable(vocabulary: Vocabulary, pieces: list[bytes]) -> dict[str, int]:
    """Spelling → id of the tokens that plain text may encode to: the first of each spelling, no control tokens."""
    try:
        ids = {piece: token for token, piece in enumerate([piece.decode() for piece in pieces])}
    except UnicodeDecodeError:
        ids = {}
    if len(ids) < len(pieces):
        ids = {}
        for token, piece in enumerate(pieces):
            # What is not UTF-8 cannot be spelled by the byte alphabet.
            if (text := piece.decode("utf-8", "ignore")).encode() == piece:
                ids.setdefault(text, token)
    for token in vocabulary.ids_of_type(TokenType.CONTROL):
        text = pieces[token].decode("utf-8", "replace")
        if ids.get(text) == token:
            del ids[text]
    return ids


def _read_model(fields: Fields, ids: dict[str, int], unknown: str | None, whole_words: bool) -> BPE:
    from tokenizers.models import BPE

    lines = fields.strings("merges")
    if lines is None:
        raise fields.error("merges", "is missing, and text cannot be encoded without it")
    if _all_are_pairs(lines):
        parts = b" ".join(lines).decode("utf-8", "replace").split(" ")
        pairs = list(zip(parts[::2], parts[1::2], strict=True))
        with suppress(Exception):  # the library's errors have no type of their own
            return BPE(vocab=ids, merges=pairs, unk_token=unknown, ignore_merges=whole_words)
    usable = _usable_merges(lines, ids)
    fields.warn("merges", f"has {len(lines) - len(usable)} lines that do not join two tokens to a third; ignored")
    try:
        return BPE(vocab=ids, merges=usable, unk_token=unknown, ignore_merges=whole_words)
    except Exception as exc:
        raise fields.error("merges", f"cannot be used: {exc}") from exc


def _all_are_pairs(lines: list[bytes]) -> bool:
    """Whether each line has exactly one space: then they can be split as one text."""
    text = np.frombuffer(b"\n".join([*lines, b""]), np.uint8)
    separators = text[(text == ord(" ")) | (text == ord("\n"))]
    alternating = np.resize(np.frombuffer(b" \n", np.uint8), 2 * len(lines))
    return bool(np.array_equal(separators, alternating))


def _usable_merges(lines: list[bytes], ids: dict[str, int]) -> list[tuple[str, str]]:
    usable = []
    for line in lines:
        left, _, right = line.decode("utf-8", "replace").partition(" ")
        if left in ids and right in ids and left + right in ids:
            usable.append((left, right))
    return usable
