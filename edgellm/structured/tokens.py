"""A vocabulary as grammars see it: the bytes of each token, and what must not be taken for text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from llguidance import LLTokenizer

Mask = npt.NDArray[np.uint32]
"""One bit per token in 32-bit words, lowest bit first; set where the token is legal."""

_SPECIAL = b"\xff"  # llguidance's mark of a token that is no text: this byte never occurs in UTF-8


@dataclass(frozen=True)
class TokenTable:
    """The tokens of one model.

    texts: by id, the bytes a token adds to a text. Tokens without bytes are never legal.
    controls: id → spelling of tokens that are no text; legal only where a grammar names them.
    ends: ids that end a generation; legal only where the grammar may end. They need not be in `controls`.
    n_vocab: length of the logits, which may be more than there are tokens.
    strips_space: where a text begins afresh, the first space of a token is no part of it (SentencePiece's dummy
        prefix).
    starts_afresh: whether the text after this token begins afresh; such a token keeps its own space.
    """

    texts: Sequence[bytes]
    controls: Mapping[int, str]
    ends: frozenset[int]
    n_vocab: int
    strips_space: bool = False
    starts_afresh: Callable[[int], bool] = field(default=lambda token: False)

    @property
    def n_words(self) -> int:
        """Length of a mask; it has a bit more than there are tokens, for an end of our own (see `build_tokenizer`)."""
        return max(self.n_vocab, len(self.texts)) // 32 + 1

    def mask_of(self, ids: Sequence[int]) -> Mask:
        """The mask that allows `ids`."""
        bits = np.zeros(self.n_words * 32, np.bool_)
        bits[list(ids)] = True
        return np.packbits(bits, bitorder="little").view("<u4").astype(np.uint32, copy=False)

    @cached_property
    def all_ends(self) -> Mask:
        """The mask that allows the ends."""
        return self.mask_of(sorted(self.ends))

    @cached_property
    def spaced(self) -> tuple[Mask, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The mask of tokens that lose a space where a text begins afresh; and ids of such tokens, beside the ids of
        tokens that are what is left of them.

        A token that is a space and nothing more is beside itself.
        """
        plain = {text: token for token, text in self._ordinary()}
        spaced = (token for token, text in self._ordinary() if text[:1] == b" ")
        losing = [token for token in spaced if not self.starts_afresh(token)]
        pairs = [(token, plain.get(self.texts[token][1:], -1)) for token in losing]
        pairs = [(token, token if len(self.texts[token]) == 1 else rest) for token, rest in pairs]
        known = np.array([pair for pair in pairs if pair[1] >= 0], np.int64).reshape(-1, 2)
        return self.mask_of(losing), known[:, 0], known[:, 1]

    def _ordinary(self) -> Iterator[tuple[int, bytes]]:
        return (
            (i, text) for i, text in enumerate(self.texts) if text and i not in self.controls and i not in self.ends
        )


def build_tokenizer(table: TokenTable) -> LLTokenizer:
    """The trie of all tokens. A model without an end token gets one that no logit belongs to."""
    from llguidance import LLTokenizer

    ends = sorted(table.ends) or [table.n_words * 32 - 1]
    return LLTokenizer(_Vocabulary(table, ends[0]), n_vocab=table.n_words * 32, eos_token=ends)  # type: ignore[arg-type]


class _Vocabulary:
    """What llguidance asks of a tokenizer object."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, table: TokenTable, end: int) -> None:
        self.eos_token_id = end
        tokens = list(table.texts)
        tokens += [b""] * (table.n_words * 32 - len(tokens))
        for token in table.ends:
            tokens[token] = _SPECIAL + b"<end %d>" % token
        for token, spelling in table.controls.items():
            tokens[token] = _SPECIAL + spelling.encode("utf-8", "surrogateescape")
        tokens[end] = tokens[end] or _SPECIAL + b"<end>"
        self.tokens = tokens
        self.special_token_ids = sorted({*table.controls, *table.ends, end})

    def __call__(self, text: Any) -> list[int]:
        """Nothing may be encoded: masks would then allow one spelling of a forced text instead of all."""
        raise AssertionError("grammars are compiled without forced tokens")
