"""Grammars at work in a model: its vocabulary as grammars see it, made when the first one is asked for."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from edgellm.prompts import Prompts
from edgellm.structured import Compiler, Grammar, GrammarConstraint, TokenTable

if TYPE_CHECKING:
    from edgellm.tokenizer import Tokenizer


class Constraints:
    """Makes constraints for the texts of one model.  Safe to use from several threads."""

    def __init__(self, prompts: Prompts, n_vocab: int) -> None:
        """`n_vocab` is the length of the logits."""
        self._prompts = prompts
        self._n_vocab = n_vocab
        self._lock = threading.Lock()
        self._compiler: Compiler | None = None

    def start(self, grammar: Grammar, after: int) -> GrammarConstraint:
        """Return the constraint of a text that comes after the token `after`.

        Raises GrammarError, and VocabularyError for a model without a vocabulary.
        """
        tokenizer = self._prompts.tokenizer
        with self._lock:
            if self._compiler is None:
                self._compiler = Compiler(token_table(tokenizer, self._n_vocab))
        afresh = after < tokenizer.n_vocab and tokenizer.is_fresh_after(after)
        return self._compiler.compile(grammar, afresh=afresh)


def token_table(tokenizer: Tokenizer, n_vocab: int) -> TokenTable:
    """Return the tokens of a tokenizer; `n_vocab` is the length of the logits."""
    texts = tokenizer.text_table()[:n_vocab]
    controls = {token: tokenizer.piece(token) for token in tokenizer.control_ids if token < n_vocab}
    return TokenTable(
        texts=texts,
        controls=controls,
        ends=frozenset(token for token in tokenizer.eog_ids if token < n_vocab),
        n_vocab=n_vocab,
        strips_space=tokenizer.strips_space,
        starts_afresh=tokenizer.is_fresh_after,
    )
