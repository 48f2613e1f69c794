"""A grammar at work on one text: which tokens may come next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edgellm.errors import GrammarError
from edgellm.structured.grammar import shortened
from edgellm.structured.tokens import Mask, TokenTable

if TYPE_CHECKING:
    from llguidance import LLMatcher


class GrammarConstraint:
    """Keeps one text within a grammar. Used by one thread at a time.

    A mask allows exactly the tokens after which the text can still be completed, every spelling of it, and the end
    tokens where it is complete.
    """

    def __init__(self, matcher: LLMatcher, table: TokenTable, *, afresh: bool) -> None:
        """afresh: the text begins where SentencePiece's dummy prefix is no part of it."""
        self._matcher = matcher
        self._table = table
        self._afresh = afresh and table.strips_space
        self._mask: Mask | None = None
        self._ended = False

    @property
    def finished(self) -> bool:
        """Whether the text is complete and nothing but an end token may follow."""
        return self._ended or (self._matcher.is_stopped() and not self._matcher.is_error())

    @property
    def error(self) -> GrammarError | None:
        """Why the grammar cannot go on, None while it can."""
        return GrammarError(f"the grammar cannot go on: {self._trouble()}") if self._matcher.is_error() else None

    @property
    def complete(self) -> bool:
        """Whether the text may end here."""
        return self._ended or self._matcher.is_accepting()

    def mask(self) -> Mask:
        """The legal tokens; the array is not to be changed, and stays as it is.

        Raises GrammarError if no token is legal, or the grammar became too complex for its limits.
        """
        if self._mask is None:
            self._mask = self._fresh_mask() if self._afresh else self._plain_mask()
        return self._mask

    def _plain_mask(self) -> Mask:
        if self._ended:
            return self._table.all_ends
        mask = np.empty(self._table.n_words, np.uint32)
        self._matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        if not mask.any() or self._matcher.is_error():
            raise GrammarError(f"the grammar cannot go on: {self._trouble()}")
        return mask

    def _trouble(self) -> str:
        if not self._matcher.is_error():
            return "the vocabulary has no token for what must come next"
        return f"nothing can follow, or it is too complex ({shortened(self._matcher.get_error())})"

    def _fresh_mask(self) -> Mask:
        """As `_plain_mask`, where tokens lose a leading space: those are legal whose rest is a legal token."""
        plain = self._plain_mask()
        losing, tokens, rests = self._table.spaced
        legal = (tokens == rests) | (plain[rests >> 5] >> (rests & 31).astype(np.uint32) & 1).astype(np.bool_)
        mask: Mask = (plain & ~losing) | self._table.mask_of(tokens[legal].tolist())
        return mask

    def advance(self, token: int) -> None:
        """Take the next token of the text. Raises GrammarError for one that is not legal."""
        self._mask = None
        if token in self._table.ends and self.complete:
            self._ended = True
            return
        afresh, self._afresh = self._afresh, self._table.strips_space and self._table.starts_afresh(token)
        if afresh:
            _, tokens, rests = self._table.spaced
            at = int(np.searchsorted(tokens, token))
            if at < len(tokens) and tokens[at] == token:
                if rests[at] == token:
                    return
                token = int(rests[at])
        if not self._matcher.consume_token(token):
            raise GrammarError(f"the grammar cannot go on with token {token}: {self._trouble()}")
