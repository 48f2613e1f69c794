"""BPE vocabularies whose merges run over text itself, ▁ for spaces, with byte tokens to fall back to: Gemma 4, Sarvam.

Where SentencePiece vocabularies have scores, these have the merges that follow from them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from edgellm.tokenizer.base import Tokenizer
from edgellm.tokenizer.fields import Fields
from edgellm.tokenizer.merges import Merges
from edgellm.tokenizer.pretokenizers import Rule
from edgellm.tokenizer.special import read_specials
from edgellm.tokenizer.vocabulary import TokenType, byte_value, read_vocabulary
from edgellm.tokenizer.words import WordCache

_SPACE = "▁"
_LINES = re.compile(r"[^\n]+|\n+")
_SPACED_WORDS = re.compile(f"{_SPACE}[^{_SPACE}]*")
# A ▁ inside of a piece, where pieces are separated by NUL, after something other than ▁.
_INNER_SPACE = re.compile(rb"\xe2\x96\x81(?<!\0\xe2\x96\x81)(?<!\xe2\x96\x81\xe2\x96\x81)")


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
        self._merges = Merges(fields, vocabulary, pieces)
        named = ((byte_value(pieces[token]), token) for token in vocabulary.ids_of_type(TokenType.BYTE))
        self._byte_ids = {byte: token for byte, token in named if byte is not None}
        self._cut = re.compile(f"(?<=[^{_SPACE}{_before_spaces(pieces)}])(?={_SPACE})")
        self._words = WordCache(self._encode_word)
        self._space_prefix = self._spaced_words = rule.spaced_words

    def _encode_text(self, text: str, fresh: bool) -> list[int]:
        text = text.replace(" ", _SPACE)
        ids = self._words.encode(_spaced_words(text) if self._spaced_words else self._cut.split(text))
        if self.unk_id in ids:
            # A run of unknown characters is one unknown token.
            ids = [token for k, token in enumerate(ids) if token != self.unk_id or ids[k - 1 : k] != [token]]
        return ids

    def _encode_word(self, word: str) -> list[int]:
        found: list[int] = []
        for part in self._merges.apply([char.encode() for char in word]):
            token = self._merges.ids.get(part)
            if token is not None:
                found.append(token)
            elif self._byte_ids.keys() >= set(part):
                found += (self._byte_ids[byte] for byte in part)
            elif self.unk_id is not None:
                found.append(self.unk_id)
            else:
                raise self._no_tokens(word)
        return found

    def _decode_piece(self, piece: bytes) -> bytes:
        return piece.replace(_SPACE.encode(), b" ")

    def _decode_byte(self, piece: bytes) -> bytes:
        value = byte_value(piece)
        return self._decode_piece(piece) if value is None else bytes((value,))


def _spaced_words(text: str) -> Iterator[str]:
    for line in _LINES.findall(text):
        if line[0] == "\n":
            yield line
        else:
            yield from _SPACED_WORDS.findall(line if line[0] == _SPACE else _SPACE + line)


def _before_spaces(pieces: Iterable[bytes]) -> str:
    """Characters that some piece has before a ▁, for a character class. After all others, a ▁ begins a new word."""
    text = b"\0" + b"\0".join(pieces)
    starts = (found.start() for found in _INNER_SPACE.finditer(text))
    return "".join(
        re.escape(char) for char in {text[max(0, at - 4) : at].decode("utf-8", "ignore")[-1:] for at in starts}
    )
