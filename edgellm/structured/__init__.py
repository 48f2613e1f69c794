"""Texts that follow a schema, a regular expression or a grammar: from these to masks of legal tokens, on llguidance."""

from edgellm.structured.compiler import Compiler
from edgellm.structured.constraint import GrammarConstraint
from edgellm.structured.grammar import Grammar
from edgellm.structured.options import wanted
from edgellm.structured.tokens import TokenTable

__all__ = ["Compiler", "Grammar", "GrammarConstraint", "TokenTable", "wanted"]
