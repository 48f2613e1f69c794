"""SentencePiece vocabularies (``tokenizer.ggml.model`` is ``llama``): pieces merged in the order of their scores.

The merging is SentencePiece's own; special tokens and the dummy prefix are handled here, because SentencePiece
knows nothing of a text that continues after a control token.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edgellm.tokenizer.fields import Fields
from edgellm.tokenizer.proto import Recipe
from edgellm.tokenizer.sentence_pieces import SentencePieceTokenizer
from edgellm.tokenizer.special import read_specials
from edgellm.tokenizer.vocabulary import read_vocabulary

_DEFAULTS = {"unk": (0, b"<unk>"), "bos": (1, b"<s>"), "eos": (2, b"</s>")}


class SpmTokenizer(SentencePieceTokenizer):
    """Encodes by merging pairs.

    Raises:
        ModelFormatError: the vocabulary contradicts itself or cannot be used.
    """

    def __init__(self, fields: Fields) -> None:
        vocabulary, pieces = read_vocabulary(fields)
        specials = read_specials(fields, vocabulary, add_bos=True, defaults=_DEFAULTS)
        super().__init__(fields, vocabulary, specials, pieces, _read_scores(fields, len(pieces)), Recipe())
        self._space_prefix = fields.flag("add_space_prefix", True)

    def _encode_text(self, text: str, fresh: bool) -> list[int]:
        return super()._encode_text(" " + text if fresh and self._space_prefix else text, fresh)


def _read_scores(fields: Fields, n_tokens: int) -> npt.NDArray[np.float32]:
    scores = fields.scores(n_tokens)
    if scores is None:
        # SentencePiece trains byte-pair vocabularies in merge order, so the id is the rank.
        fields.warn("scores", "is missing; pieces are merged in the order of their ids")
        return -np.arange(n_tokens, dtype=np.float32)
    return scores
