"""From the metadata of a GGUF file to the tokenizer it asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from edgellm.errors import UnsupportedModelError, VocabularyError
from edgellm.tokenizer.base import Tokenizer
from edgellm.tokenizer.bpe import BpeTokenizer
from edgellm.tokenizer.dna import HybridDnaTokenizer
from edgellm.tokenizer.fields import PREFIX, Fields
from edgellm.tokenizer.plamo import Plamo2Tokenizer
from edgellm.tokenizer.pretokenizers import RULES, Rule
from edgellm.tokenizer.rwkv import RwkvTokenizer
from edgellm.tokenizer.spaced_bpe import SpacedBpeTokenizer
from edgellm.tokenizer.spm import SpmTokenizer
from edgellm.tokenizer.unigram import UnigramTokenizer
from edgellm.tokenizer.word_bpe import WordBpeTokenizer
from edgellm.tokenizer.wordpiece import WordPieceTokenizer

_NO_VOCABULARY = (None, "no_vocab", "none")


def load_tokenizer(metadata: Mapping[str, Any], name: str = "model") -> Tokenizer:
    """Build the tokenizer that GGUF metadata describes.

    metadata: full key → value. Arrays may be lists or objects with ``bytes_list()`` and ``numpy()``.
    name: what errors and warnings call the file.

    Raises:
        VocabularyError: the model has no vocabulary.
        UnsupportedModelError: a kind of tokenizer that EdgeLLM does not have.
        ModelFormatError: a value is missing, has the wrong type or contradicts another.
    """
    fields = Fields(metadata, name)
    kind = fields.text("model")
    if kind in _NO_VOCABULARY:
        raise VocabularyError(f"{name}: the model has no vocabulary ({PREFIX}model is {kind or 'missing'})")
    if kind not in KINDS:
        raise UnsupportedModelError(f"{name}: {PREFIX}model is {kind!r}, a kind of tokenizer EdgeLLM does not have")
    return KINDS[kind](fields)


def _load_bpe(fields: Fields) -> Tokenizer:
    if fields.text("pre") == "whitespace":
        return WordBpeTokenizer(fields)
    rule = _read_rule(fields)
    return SpacedBpeTokenizer(fields, rule) if rule.spaces_kept else BpeTokenizer(fields, rule)


def _read_rule(fields: Fields) -> Rule:
    name = fields.text("pre")
    if name in RULES:
        return RULES[name]
    known = "is missing" if name is None else f"is {name!r}, a pre-tokenizer EdgeLLM does not know"
    fields.warn("pre", f"{known}; the default rule cuts words, which may not be the model's own")
    return RULES["default"]


# By `tokenizer.ggml.model`.
KINDS: dict[str, Callable[[Fields], Tokenizer]] = {
    "llama": SpmTokenizer,
    "gpt2": _load_bpe,
    "gemma4": lambda fields: SpacedBpeTokenizer(fields, RULES["gemma4"]),
    "bert": WordPieceTokenizer,
    "t5": UnigramTokenizer,
    "rwkv": RwkvTokenizer,
    "plamo2": Plamo2Tokenizer,
    "whitespace": WordBpeTokenizer,
    "hybriddna": lambda fields: HybridDnaTokenizer(fields, _read_rule(fields)),
}
