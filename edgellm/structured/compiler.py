"""Grammars to constraints, within limits."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from edgellm.errors import GrammarError
from edgellm.structured.constraint import GrammarConstraint
from edgellm.structured.grammar import Grammar
from edgellm.structured.tokens import TokenTable, build_tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher

_KEPT = 32
_STACK = 64 * 1024 * 1024  # of address space; memory only where it is used
_stack_size = threading.Lock()

Result = TypeVar("Result")

_LIMITS = {
    "max_items_in_row": 20_000,
    "initial_lexer_fuel": 1_000_000,
    "step_lexer_fuel": 200_000,
    "step_max_items": 50_000,
    "max_lexer_states": 50_000,  # about 100 MB
    "max_grammar_size": 200_000,
    "verbose_errors": False,
}


class Compiler:
    """Compiles grammars for one vocabulary, and remembers the last ones. Safe to use from several threads.

    Make one for a model: it begins by building a trie of all tokens, which takes a second for 250,000 of them.
    """

    def __init__(self, table: TokenTable) -> None:
        self._table = table
        self._tokenizer = build_tokenizer(table)
        self._lock = threading.Lock()
        self._compiled: OrderedDict[str, LLMatcher] = OrderedDict()

    def compile(self, grammar: Grammar, *, afresh: bool = False) -> GrammarConstraint:
        """The constraint for a new text. afresh: see `GrammarConstraint`.

        Raises GrammarError, naming the argument and where in it the fault is, for grammars that are not valid, not
        supported, beyond the limits, or that no text of this vocabulary satisfies.
        """
        with self._lock:
            matcher = self._compiled.get(grammar.lark)
            if matcher is not None:
                self._compiled.move_to_end(grammar.lark)
        if matcher is None:
            matcher = self._match(grammar)
            with self._lock:
                self._compiled[grammar.lark] = matcher
                if len(self._compiled) > _KEPT:
                    self._compiled.popitem(last=False)
        return GrammarConstraint(matcher.deep_copy(), self._table, afresh=afresh)

    def _match(self, grammar: Grammar) -> LLMatcher:
        matcher = _deeply(lambda: self._new(grammar.lark))
        if matcher.is_error():
            raise GrammarError(
                grammar.explain(matcher.get_error(), lambda lark: _deeply(lambda: self._new(lark).get_error()))
            )
        try:
            GrammarConstraint(matcher.deep_copy(), self._table, afresh=False).mask()
        except GrammarError as error:
            raise GrammarError(f"{grammar.argument}: no text of this model's tokens satisfies it ({error})") from None
        return matcher

    def _new(self, lark: str) -> LLMatcher:
        from llguidance import LLMatcher, LLParserLimits

        return LLMatcher(
            self._tokenizer,
            LLMatcher.grammar_from_lark(lark),
            log_level=0,
            limits=LLParserLimits(**_LIMITS),  # type: ignore[arg-type]
        )


def _deeply(function: Callable[[], Result]) -> Result:
    """Run `function` on a stack that suffices for every grammar within the limits, whatever the caller's is."""
    outcome: Future[Result] = Future()

    def run() -> None:
        try:
            outcome.set_result(function())
        except BaseException as error:
            outcome.set_exception(error)

    with _stack_size:
        before = threading.stack_size(_STACK)
        try:
            thread = threading.Thread(target=run, name="edgellm-grammar")
            thread.start()
        finally:
            threading.stack_size(before)
    thread.join()
    return outcome.result()
