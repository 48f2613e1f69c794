"""Grammars that users write: Lark, or GBNF, which becomes Lark."""

from __future__ import annotations

import json
import re
from typing import Any

from edgellm.errors import GrammarError
from edgellm.structured.check import checked
from edgellm.structured.gbnf import translate
from edgellm.structured.grammar import HEADER, Grammar, check_text, inline_json, nowhere

# The compiler recurses through rules and parentheses: these are the levels of the longest way there could be. A few
# times as many would overflow the compiler's stack.
MAX_LEVELS = 1_000

_LEADING = re.compile(r"(?:\s|#[^\n]*|//[^\n]*)*")
_GBNF = re.compile(r"[A-Za-z0-9_-]+\s*::=")
_LARK = re.compile(r"%|[?!]?[A-Za-z_][A-Za-z0-9_-]*[^:\n]*:(?!:=)")
_TOKEN = re.compile(
    r"""(?P<text>"(?:[^"\\\n]|\\.)*"|/(?!/)(?:[^/\\\n]|\\.)+/[imslux]*)|(?P<comment>//[^\n]*|\#[^\n]*)|(?P<json>%json)"""
    r"|(?P<rule>^[^\S\n]*[?!]?[A-Za-z_][\w-]*)|(?P<open>[(\[{])|(?P<close>[)\]}])|[^\"/#%()\[\]{}\n]+|.|\n",
    re.MULTILINE | re.DOTALL,
)


def text_grammar(text: object) -> Grammar:
    """A grammar in Lark's notation or in GBNF, whichever its first definition is in: ``name:`` or ``name ::=``."""
    source = check_text("grammar", text)
    at = _LEADING.match(source)
    start = at.end() if at else 0
    if _GBNF.match(source, start):
        return Grammar(_bounded(translate(source)) + HEADER, "grammar", locate=nowhere)
    if _LARK.match(source, start):
        return Grammar(_bounded(_with_safe_json(source)) + "\n" + HEADER, "grammar")
    found = source[start : start + 40].split("\n")[0]
    raise GrammarError(
        f"grammar must begin with a rule, Lark's `start: …` or GBNF's `root ::= …`, not {found!r}"
        if found
        else "grammar is empty"
    )


def _bounded(source: str) -> str:
    """The grammar, if the compiler can take it. Raises GrammarError."""
    levels = depth = deepest = 0
    for token in _TOKEN.finditer(source):
        # Whatever begins a line may be a rule: better to count too many than too few.
        if token.lastgroup == "rule":
            levels += 1 + deepest
            depth = deepest = 0
        elif token.lastgroup == "open":
            depth += 1
            deepest = max(deepest, depth)
        elif token.lastgroup == "close":
            depth = max(0, depth - 1)
        if levels + deepest > MAX_LEVELS:
            raise GrammarError(
                f"grammar: its rules and parentheses have more levels together than the limit of {MAX_LEVELS}"
            )
    return source


def _with_safe_json(source: str) -> str:
    """The grammar with its schemas checked like others, and their white space bounded."""
    parts: list[str] = []
    done = 0
    for token in _TOKEN.finditer(source):
        if token.lastgroup == "json" and token.start() >= done:
            schema, end = _schema_at(source, token.end())
            parts += [source[done : token.start()], inline_json(checked(schema))]
            done = end
    return "".join([*parts, source[done:]])


def _schema_at(source: str, start: int) -> tuple[Any, int]:
    begin = start + len(source[start:]) - len(source[start:].lstrip())
    try:
        return json.JSONDecoder().raw_decode(source, begin)
    except RecursionError:
        raise GrammarError("grammar: a schema after %json is nested too deeply") from None
    except ValueError as error:
        raise GrammarError(f"grammar: no JSON Schema after %json: {error}") from None
