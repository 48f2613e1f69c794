"""Texts that follow a schema, a regular expression or a grammar: from these to masks of legal tokens, on llguidance.

`wanted` makes a `Grammar` of a call's arguments; a `Compiler` for one vocabulary makes a `GrammarConstraint` of it for
each text. `edgellm.structured.toolcalls.call_grammar` is for free text with calls in it, and
`edgellm.structured.reasoning.after` for free text before a structured one.
"""

from edgellm.structured.compiler import Compiler
from edgellm.structured.constraint import GrammarConstraint
from edgellm.structured.grammar import Grammar
from edgellm.structured.options import wanted
from edgellm.structured.tokens import TokenTable

__all__ = ["Compiler", "Grammar", "GrammarConstraint", "TokenTable", "wanted"]
