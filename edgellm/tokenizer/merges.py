"""The merging part of BPE vocabularies: what text may become, and which neighbours become one, in which order."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from edgellm.tokenizer.fields import Fields
from edgellm.tokenizer.vocabulary import TokenType, Vocabulary

if TYPE_CHECKING:
    from tokenizers.models import BPE


def encodable(vocabulary: Vocabulary, pieces: list[bytes]) -> dict[str, int]:
    """Spelling → id of the tokens that plain text may become: the first of each spelling, no control tokens."""
    ids: dict[str, int] = {}
    with suppress(ValueError):
        # One text for all: a quarter of a million calls take longer. Fails where a piece holds NUL or is not UTF-8.
        ids = dict(zip(b"\0".join(pieces).decode().split("\0"), range(len(pieces)), strict=True))
    if len(ids) < len(pieces):
        ids = {}
        for token, piece in enumerate(pieces):
            # Text is valid UTF-8, and cannot become what is not.
            if (text := piece.decode("utf-8", "ignore")).encode() == piece:
                ids.setdefault(text, token)
    for token in vocabulary.ids_of_type(TokenType.CONTROL):
        text = pieces[token].decode("utf-8", "replace")
        if ids.get(text) == token:
            del ids[text]
    return ids


def read_model(fields: Fields, vocabulary: Vocabulary, ids: dict[str, int], **options: Any) -> BPE:
    """The model of the ``tokenizers`` library that merges, made with its ``options``. Odd merges are left out.

    ids: what :func:`encodable` gave, and maybe more.

    Raises:
        ModelFormatError: there are no merges, or none that can be used.
    """
    from tokenizers.models import BPE

    lines = fields.strings("merges")
    if lines is None:
        raise fields.error("merges", "is missing, and text cannot be encoded without it")
    pairs = _split_all(lines)
    used = np.fromiter(ids.values(), np.int64, len(ids))
    longest = vocabulary.lengths[used[used < len(vocabulary)]].max(initial=0)
    # The library panics where two neighbours are longer than any token.
    if pairs is not None and max(map(len, lines), default=0) - 1 <= longest:
        with suppress(Exception):  # the library's errors have no type of their own
            return BPE(vocab=ids, merges=pairs, **options)
    usable = _usable(lines, ids)
    fields.warn("merges", f"has {len(lines) - len(usable)} lines that do not join two tokens to a third; ignored")
    try:
        return BPE(vocab=ids, merges=usable, **options)
    except Exception as exc:
        raise fields.error("merges", f"cannot be used: {exc}") from exc


def _split_all(lines: list[bytes]) -> list[tuple[str, str]] | None:
    """The two parts of each line, or None if one has not exactly one space. All as one text, for speed."""
    text = b"\0".join(lines)
    if text.translate(None, _NO_SEPARATOR) != (b" \0" * len(lines))[:-1]:
        return None
    parts = iter(text.replace(b"\0", b" ").decode("utf-8", "replace").split(" "))
    return list(zip(parts, parts, strict=True)) if lines else []


_NO_SEPARATOR = bytes(byte for byte in range(256) if byte not in b" \0")


def _usable(lines: list[bytes], ids: dict[str, int]) -> list[tuple[str, str]]:
    usable = []
    for line in lines:
        left, _, right = line.decode("utf-8", "replace").partition(" ")
        if left in ids and right in ids and left + right in ids:
            usable.append((left, right))
    return usable
