"""Text that comes before the structured part of a reply, such as a model's reasoning."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from edgellm.structured.grammar import HEADER, Grammar, literal
from edgellm.structured.toolcalls import Token, free_text


def after(
    marker: str | Token, grammar: Grammar, *, opening: str | Token | None = None, controls: Iterable[int] = ()
) -> Grammar:
    """Free text up to and with the first `marker`, then up to eight blanks or line ends, then a text of `grammar`.

    marker: a text, which may also come about in pieces, or a control token. opening: what the free text begins with;
    given, there may also be none, and the text of `grammar` comes at once. controls: ids of control tokens that may
    occur in the free text. The value is that of the text after a marker that is a text; a control token is no part of
    a text, so there the caller has to tell the parts from each other and use ``grammar.value``.
    """
    blank = r"BLANK: /[\x20\t\r\n]{1,8}/"
    start = "head BLANK? @inner" if opening is None else f"BLANK? {_spelled(opening)} head BLANK? @inner | @inner"
    outer = HEADER + "\n".join([f"start: {start}", blank, *free_text(marker, frozenset(controls))])
    # A grammar of its own, so that no name and no rule of the user's can meet ours.
    parts = [{"name": "outer", "lark_grammar": outer}, {"name": "inner", "lark_grammar": grammar.lark}]

    def value(text: str) -> Any:
        at_once = isinstance(opening, str) and not text.lstrip(" \t\r\n").startswith(opening)
        rest = text if at_once or isinstance(marker, Token) else text.partition(marker)[2]
        return grammar.value(rest.lstrip(" \t\r\n"))

    return replace(grammar, lark=json.dumps({"grammars": parts}), value=value)


def _spelled(mark: str | Token) -> str:
    return f"<[{mark.id}]>" if isinstance(mark, Token) else literal(mark)
