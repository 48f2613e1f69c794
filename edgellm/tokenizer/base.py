"""What every tokenizer does the same way, whatever its algorithm."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import cached_property

from edgellm.errors import ArgumentError, VocabularyError
from edgellm.tokenizer.fields import Fields
from edgellm.tokenizer.matcher import TokenMatcher
from edgellm.tokenizer.special import Specials
from edgellm.tokenizer.strip import strips_after, strips_before
from edgellm.tokenizer.vocabulary import TokenType, Vocabulary

_HIDDEN = (TokenType.CONTROL, TokenType.UNKNOWN)
_SPLITTING = (TokenType.CONTROL, TokenType.USER_DEFINED)
_LITERAL = (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED)
_ASCII_SPACE = " \t\n\v\f\r"


class Tokenizer(ABC):
    """Text to token ids and back. Safe to use from several threads.

    Attributes: bos_id, eos_id, eot_id, eom_id, pad_id, unk_id, sep_id and mask_id (None where the model has none);
    eog_ids, all ids that end a generation; add_bos and add_eos, what ``encode`` adds.
    """

    def __init__(self, fields: Fields, vocabulary: Vocabulary, specials: Specials) -> None:
        self._name = fields.name
        self._warnings = fields.warnings
        self._vocabulary = vocabulary
        self.bos_id = specials.bos
        self.eos_id = specials.eos
        self.eot_id = specials.eot
        self.eom_id = specials.eom
        self.pad_id = specials.pad
        self.unk_id = specials.unk
        self.sep_id = specials.sep
        self.mask_id = specials.mask
        self.eog_ids = specials.eog
        self.add_bos = specials.add_bos
        self.add_eos = specials.add_eos
        # SentencePiece's dummy prefix: a space before text at the start and after every splitting token.
        self._space_prefix = False
        self._strips_before = strips_before(fields, vocabulary)
        self._strips_after = strips_after(fields, vocabulary)
        # token → (bytes without control tokens, bytes with them, whether text after it starts afresh)
        self._seen: dict[int, tuple[bytes, bytes, bool]] = {}

    @abstractmethod
    def _encode_text(self, text: str, fresh: bool) -> list[int]:
        """Ids of a text without special tokens; ``fresh``: at the start, or right after a splitting token."""

    @abstractmethod
    def _decode_piece(self, piece: bytes) -> bytes:
        """The bytes that a piece of an ordinary token stands for."""

    @property
    def n_vocab(self) -> int:
        """Number of tokens."""
        return len(self._vocabulary)

    @property
    def control_ids(self) -> list[int]:
        """The control tokens, ascending: plain text never encodes to one."""
        return self._vocabulary.ids_of_type(TokenType.CONTROL)

    @property
    def strips_space(self) -> bool:
        """Whether the first space is no part of a text that starts afresh (SentencePiece's dummy prefix)."""
        return self._space_prefix

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with the file's vocabulary, yet no reason to refuse it; logged when it was read."""
        return tuple(self._warnings)

    def encode(self, text: str, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Token ids of ``text``.

        add_special: add BOS and EOS where the model wants them. Where parsed text already begins (ends) with
            that token, there is no second one.
        parse_special: text that spells a control token becomes that token. User-defined tokens always match.

        Raises:
            ArgumentError: the text holds half of a surrogate pair.
            VocabularyError: the vocabulary has no tokens for a character.
        """
        return self.encode_segments([(text, parse_special)], add_special)

    def encode_segments(self, segments: Iterable[tuple[str, bool]], add_special: bool = True) -> list[int]:
        """Token ids of one text made of (text, parse_special) segments, such as a template's markup and its content.

        The text is encoded as a whole, so the cuts leave no trace in it, but a control token is only recognized
        where it lies in segments that may spell one.

        Raises:
            ArgumentError: the text holds half of a surrogate pair.
            VocabularyError: the vocabulary has no tokens for a character.
        """
        parts = list(self._split(segments))
        ids: list[int] = []
        fresh, strip = True, False
        for k, part in enumerate(parts):
            if isinstance(part, int):
                ids.append(part)
                fresh, strip = True, part in self._strips_after
                continue
            part = part.lstrip(_ASCII_SPACE) if strip else part
            if self._strips_before and k + 1 < len(parts) and parts[k + 1] in self._strips_before:
                part = part.rstrip(_ASCII_SPACE)
            if part:
                ids += self._encode_text(part, fresh)
                fresh = strip = False
        if add_special:
            if self.add_bos and self.bos_id is not None and parts[:1] != [self.bos_id]:
                ids.insert(0, self.bos_id)
            if self.add_eos and self.eos_id is not None and parts[-1:] != [self.eos_id]:
                ids.append(self.eos_id)
        return ids

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """The text of ``ids``. Bytes that are not UTF-8 become U+FFFD.

        skip_special: leave out control tokens.

        Raises:
            VocabularyError: an id lies outside of the vocabulary.
        """
        parts: list[bytes] = []
        fresh = True
        for token in ids:
            data, fresh = self.next_bytes(token, fresh, skip_special)
            parts.append(data)
        return b"".join(parts).decode("utf-8", "replace")

    def token_bytes(self, token: int, special: bool = False) -> bytes:
        """The bytes that a token adds to a text; none for a control token, unless ``special``.

        Raises:
            VocabularyError: the id lies outside of the vocabulary.
        """
        # Not remembered: a caller that asks for the whole vocabulary has its own table.
        hidden, full, _ = self._seen.get(token) or self._entry(token)
        return full if special else hidden

    def text_table(self) -> list[bytes]:
        """The bytes that each token adds to a text, by id; none for control, unknown and unused tokens."""
        unused = set(self._vocabulary.ids_of_type(TokenType.UNUSED))
        return [b"" if token in unused else self._entry(token)[0] for token in range(self.n_vocab)]

    def next_bytes(self, token: int, fresh: bool, skip_special: bool) -> tuple[bytes, bool]:
        """The bytes of a token where it stands in a text, and whether the text after it starts afresh.

        fresh: the token is the first, or comes after one that starts the text afresh. There, the space of
        SentencePiece's dummy prefix is not part of the text.
        """
        hidden, full, fresh_after = self._seen.get(token) or self._look_up(token)
        data = hidden if skip_special else full
        if fresh and self._space_prefix and not fresh_after and data.startswith(b" "):
            data = data[1:]
        return data, fresh_after

    def is_fresh_after(self, token: int | None) -> bool:
        """Whether text that follows ``token`` (None: nothing) starts afresh, as :meth:`next_bytes` means it."""
        return token is None or (self._seen.get(token) or self._look_up(token))[2]

    def is_control(self, token: int) -> bool:
        """Whether the token is a control token, which plain text never encodes to.

        Raises:
            VocabularyError: the id lies outside of the vocabulary.
        """
        return self._vocabulary.type_of(self._checked(token)) == TokenType.CONTROL

    def piece(self, token: int) -> str:
        """The vocabulary's own spelling of a token, for display.

        Raises:
            VocabularyError: the id lies outside of the vocabulary.
        """
        return self._vocabulary.piece(self._checked(token)).decode("utf-8", "replace")

    def id_of(self, text: str) -> int | None:
        """The token with this spelling in the vocabulary, or None."""
        _check_text(text)
        return self._vocabulary.find(text.encode())

    def _no_tokens(self, text: str) -> VocabularyError:
        """The error to raise where text cannot be encoded."""
        return VocabularyError(
            f"{self._name}: the vocabulary has no tokens for something in {text[:40]!r}, and no unknown token"
        )

    def _checked(self, token: int) -> int:
        token = operator.index(token)
        if not 0 <= token < len(self._vocabulary):
            raise VocabularyError(f"{self._name}: token {token} is outside of the vocabulary of {self.n_vocab} tokens")
        return token

    def _look_up(self, token: int) -> tuple[bytes, bytes, bool]:
        entry = self._entry(token)
        self._seen[operator.index(token)] = entry
        return entry

    def _entry(self, token: int) -> tuple[bytes, bytes, bool]:
        token = self._checked(token)
        kind = self._vocabulary.type_of(token)
        full = self._vocabulary.piece(token)
        if kind not in _LITERAL:
            full = self._decode_piece(full) if kind != TokenType.BYTE else self._decode_byte(full)
        return (b"" if kind in _HIDDEN else full, full, kind in _SPLITTING)

    def _decode_byte(self, piece: bytes) -> bytes:
        return self._decode_piece(piece)

    def _split(self, segments: Iterable[tuple[str, bool]]) -> Iterator[str | int]:
        """Plain text and special tokens, in order."""
        texts: list[str] = []
        # Where the text changes between segments that may and may not spell control tokens: may, may not, may…
        borders: list[int] = []
        length = 0
        for text, parse_special in segments:
            if parse_special != (len(borders) % 2 == 0):
                borders.append(length)
            texts.append(text)
            length += len(text)
        text = "".join(texts)
        _check_text(text)
        if borders in ([], [length]):
            return self._all_matcher.split(text)
        if borders == [0]:
            return self._added_matcher.split(text)

        def allowed(token: int, start: int, end: int) -> bool:
            if self._vocabulary.type_of(token) == TokenType.USER_DEFINED:
                return True
            span = bisect_right(borders, start)
            return span % 2 == 0 and span == bisect_right(borders, end - 1)

        return self._all_matcher.split(text, allowed)

    @cached_property
    def _added_matcher(self) -> TokenMatcher:
        return self._match_types(TokenType.USER_DEFINED)

    @cached_property
    def _all_matcher(self) -> TokenMatcher:
        return self._match_types(*_LITERAL)

    def _match_types(self, *kinds: TokenType) -> TokenMatcher:
        pieces = ((self._vocabulary.piece(token), token) for token in self._vocabulary.ids_of_type(*kinds))
        # A replaced byte cannot occur in text that came in as a valid string, so such a token never matches.
        return TokenMatcher((piece.decode("utf-8", "surrogateescape"), token) for piece, token in pieces)


def _check_text(text: str) -> None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as exc:
            raise ArgumentError(f"text holds a lone surrogate at index {exc.start}, which is not a character") from None
