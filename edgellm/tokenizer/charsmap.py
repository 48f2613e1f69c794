"""SentencePiece's compiled table of replacements, checked before SentencePiece walks it without looking.

The blob is the size of a trie in bytes (uint32, little-endian), the trie, and texts that end in NUL. The trie is a
double array of darts-clone: units of 32 bits, which hold a place in the texts (bit 31 set), or a label (bits 0 to 7),
whether a text belongs to the node (bit 8) and the distance to the children (bits 10 to 30, times 256 if bit 9 is set).
A child's place is the node's, exclusive-or the distance, exclusive-or its label.
"""

from __future__ import annotations

import numpy as np

from edgellm.tokenizer.fields import Fields

_KEY = "precompiled_charsmap"
_VALUE = 1 << 31


def read_charsmap(fields: Fields) -> bytes:
    """The table as SentencePiece takes it; empty where the file has none.

    Raises:
        ModelFormatError: it is not a table, or leads outside of itself.
    """
    data = fields.blob(_KEY)
    if not data:
        return b""
    n_trie = int.from_bytes(data[:4], "little")
    trie, texts = data[4 : 4 + n_trie], data[4 + n_trie :]
    # A place below is at most 255 further than a multiple of 256.
    if len(data) < 4 or len(trie) != n_trie or n_trie % 1024 or not n_trie or texts[-1:] != b"\0":
        raise fields.error(_KEY, "is not a table of replacements as SentencePiece compiles them")
    units = np.frombuffer(trie, "<u4")
    is_node = units < _VALUE
    children = np.arange(len(units), dtype=np.uint32) ^ (units >> 10 << ((units & 1 << 9) >> 6))
    inside = children | 255 < len(units)
    has_text = is_node & inside & (units >> 8 & 1).astype(bool)
    places = units[children[has_text]] & _VALUE - 1
    if not inside[is_node].all() or (places >= len(texts)).any():
        raise fields.error(_KEY, "is damaged: it leads outside of itself")
    return data
