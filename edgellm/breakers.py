"""The texts that no repetition reaches across, as the token sequences that spell them."""

from __future__ import annotations

from collections.abc import Iterable

from edgellm.tokenizer import Tokenizer

LONGEST = 20
"""Tokens of a sequence; longer ones are left out."""


def token_sequences(texts: Iterable[str], tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    """Return the ways in which a text of tokens comes to contain one of `texts`, up to its last token.

    These are every token with one in it, every token that ends with the beginning of one followed by the tokens of the
    rest, and the tokens of the whole.  Control tokens count by their spelling.
    """
    pieces = [(token, tokenizer.token_bytes(token, special=True)) for token in range(tokenizer.n_vocab)]
    found: dict[tuple[int, ...], None] = {}
    for text in texts:
        whole = text.encode()
        found[_inner(text, tokenizer)] = None
        begun = [(text[:i].encode(), _inner(text[i:], tokenizer)) for i in range(1, len(text))]
        for token, piece in pieces:
            if whole in piece:
                found[token,] = None
            for start, rest in begun:
                if piece.endswith(start):
                    found[(token, *rest)] = None
    return [sequence for sequence in found if 0 < len(sequence) <= LONGEST]


def _inner(text: str, tokenizer: Tokenizer) -> tuple[int, ...]:
    """The tokens of `text` where it stands inside of a longer one."""
    # A line break in front keeps it from being encoded as the start of a text, where it may get a space.
    tokens = tokenizer.encode("\n" + text, add_special=False)
    while tokens and b"".join(map(tokenizer.token_bytes, tokens)) != text.encode():
        del tokens[0]
    return tuple(tokens or tokenizer.encode(text, add_special=False))
