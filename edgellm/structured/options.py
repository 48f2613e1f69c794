"""The arguments that ask for structured output, of which a call takes one."""

from __future__ import annotations

from typing import Any

from edgellm.errors import ArgumentError
from edgellm.structured.grammar import Grammar, choice_grammar, regex_grammar
from edgellm.structured.lark import text_grammar
from edgellm.structured.schema import json_grammar, schema_grammar


def wanted(
    schema: Any = None, regex: str | None = None, grammar: str | None = None, json: bool = False, choices: Any = None
) -> Grammar | None:
    """The grammar that a call asks for, None for free text.

    Raises ArgumentError for more than one of the arguments or one of a wrong type, GrammarError for one that cannot be
    used.
    """
    if not isinstance(json, bool):
        raise ArgumentError(f"json must be True or False, not {json!r}; a JSON Schema is given as schema=")
    given = {"schema": schema, "regex": regex, "grammar": grammar, "json": json or None, "choices": choices}
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise ArgumentError(f"{' and '.join(names)} are given: a text can follow one of them only")
    if json:
        return json_grammar()
    if schema is not None:
        return schema_grammar(schema)
    if regex is not None:
        return regex_grammar(regex)
    if grammar is not None:
        return text_grammar(grammar)
    return None if choices is None else choice_grammar(choices)
