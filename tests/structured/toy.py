"""A vocabulary of bytes with a few odd tokens, and texts drawn from grammars over it."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from edgellm.structured import Compiler, Grammar, GrammarConstraint, TokenTable

END, OTHER_END, TOOL, EMPTY = 256, 257, 258, 259
WORDS = [b"ab", b'{"', b' {"', b" a", b" ", b'": ', b"  ", b"\n  ", b"}}", b'"}', b"true", b"12"]
EXTRA = [*WORDS, b"\xc3\xa9", b"\x82\xac"]  # a whole character, and a part of one
FIRST_EXTRA = 260
N_VOCAB = FIRST_EXTRA + len(EXTRA) + 3
"""Three logits more than there are tokens."""


def table(**changes: Any) -> TokenTable:
    fields: dict[str, Any] = {
        "texts": [*(bytes([i]) for i in range(256)), b"", b"", b"", b"", *EXTRA],
        "controls": {END: "<eos>", OTHER_END: "<|eom|>", TOOL: "<tool>"},
        "ends": frozenset({END, OTHER_END}),
        "n_vocab": N_VOCAB,
    }
    return TokenTable(**{**fields, **changes})


TABLE = table()
COMPILER = Compiler(TABLE)


def legal(constraint: GrammarConstraint) -> list[int]:
    """The ids that may come next."""
    bits = np.unpackbits(constraint.mask().view(np.uint8), bitorder="little")
    found: list[int] = np.flatnonzero(bits).tolist()
    return found


def draw(grammar: Grammar, seed: int, most: int = 400, compiler: Compiler = COMPILER) -> tuple[bytes, bool]:
    """A text of random legal tokens, and whether it is complete; ends are taken when drawn."""
    constraint, rng, text = compiler.compile(grammar), random.Random(seed), b""
    for _ in range(most):
        if constraint.finished:
            break
        token = rng.choice(legal(constraint))
        constraint.advance(token)
        if token in TABLE.ends:
            return text, True
        text += TABLE.texts[token]
    return text, constraint.finished


def accepts(grammar: Grammar, text: str | bytes) -> bool:
    """Whether a text, byte by byte, is legal and may end."""
    constraint = COMPILER.compile(grammar)
    for byte in text.encode() if isinstance(text, str) else text:
        if byte not in legal(constraint):
            return False
        constraint.advance(byte)
    return constraint.complete
