"""Unigram vocabularies (``tokenizer.ggml.model`` is ``t5``): the most probable pieces, found by SentencePiece."""

from __future__ import annotations

from edgellm.tokenizer.charsmap import read_charsmap
from edgellm.tokenizer.fields import Fields
from edgellm.tokenizer.proto import Recipe
from edgellm.tokenizer.sentence_pieces import SentencePieceTokenizer
from edgellm.tokenizer.special import read_specials
from edgellm.tokenizer.vocabulary import read_vocabulary

_DEFAULTS = {"pad": (0, b"<pad>"), "eos": (1, b"</s>"), "unk": (2, b"<unk>")}


class UnigramTokenizer(SentencePieceTokenizer):
    """Encodes by probability, after the replacements and the clean-up of white space that the file asks for.

    Text comes back as it was only where the file asks for neither.

    Raises:
        ModelFormatError: the vocabulary contradicts itself or cannot be used.
    """

    def __init__(self, fields: Fields) -> None:
        vocabulary, pieces = read_vocabulary(fields)
        specials = read_specials(fields, vocabulary, add_bos=False, add_eos=True, defaults=_DEFAULTS)
        scores = fields.scores(len(pieces))
        if scores is None:
            raise fields.error("scores", "is missing, and text cannot be encoded without it")
        space_prefix = fields.flag("add_space_prefix", True)
        recipe = Recipe(
            unigram=True,
            charsmap=read_charsmap(fields),
            add_dummy_prefix=space_prefix,
            remove_extra_whitespaces=fields.flag("remove_extra_whitespaces", False),
        )
        super().__init__(fields, vocabulary, specials, pieces, scores, recipe)
        self._space_prefix = space_prefix
