"""`edgellm.Tokenizer`: the tokenizer of a GGUF file, with or without a model around it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgellm import tokenizer


class Tokenizer:
    """Text to token ids and back, by the vocabulary of a GGUF file.

    Works on files without weights.  Safe to use from several threads.
    """

    def __init__(self, model: str | os.PathLike[str]) -> None:
        """Read the vocabulary of a file or of a model of the catalog.

        Raises VocabularyError if the file has none, UnsupportedModelError for a kind of tokenizer that EdgeLLM lacks,
        ModelFormatError for a damaged one, ModelNotFoundError if there is no such file.
        """
        from edgellm.gguf import open_model
        from edgellm.locate import locate
        from edgellm.tokenizer import load_tokenizer

        with open_model(locate(model)) as file:
            self._inner: tokenizer.Tokenizer = load_tokenizer(file.metadata, file.name)

    @classmethod
    def _of(cls, inner: tokenizer.Tokenizer) -> Tokenizer:
        self = cls.__new__(cls)
        self._inner = inner
        return self

    @property
    def n_vocab(self) -> int:
        """Number of tokens."""
        return self._inner.n_vocab

    @property
    def bos_id(self) -> int | None:
        """The token that begins a text."""
        return self._inner.bos_id

    @property
    def eos_id(self) -> int | None:
        """The token that ends a text."""
        return self._inner.eos_id

    @property
    def sep_id(self) -> int | None:
        """The token between two texts, such as a query and a document."""
        return self._inner.sep_id

    @property
    def eog_ids(self) -> frozenset[int]:
        """Every token that ends a generation."""
        return self._inner.eog_ids

    @property
    def add_bos(self) -> bool:
        """Whether the model wants its texts to begin with `bos_id`."""
        return self._inner.add_bos

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with the file's vocabulary, yet no reason to refuse it; logged when it was read."""
        return self._inner.warnings

    def encode(self, text: str, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Return the ids of `text`.

        add_special: add the tokens at the start and the end that the model wants, unless parsed text has them.
        parse_special: text that spells a control token becomes that token.

        Raises ArgumentError for half of a surrogate pair, VocabularyError where no token fits a character.
        """
        return self._inner.encode(text, add_special, parse_special)

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """Return the text of `ids`; bytes that are not UTF-8 become U+FFFD.  Raises VocabularyError for unknown ids."""
        return self._inner.decode(ids, skip_special)

    def token_bytes(self, token: int, special: bool = False) -> bytes:
        """Return the bytes a token adds to a text; none for a control token, unless `special`."""
        return self._inner.token_bytes(token, special)

    def piece(self, token: int) -> str:
        """Return the vocabulary's own spelling of a token, for display."""
        return self._inner.piece(token)

    def id_of(self, text: str) -> int | None:
        """Return the token with this spelling in the vocabulary, or None."""
        return self._inner.id_of(text)

    def is_control(self, token: int) -> bool:
        """Return whether plain text never encodes to this token."""
        return self._inner.is_control(token)

    def __repr__(self) -> str:
        return f"<Tokenizer: {self.n_vocab} tokens>"
