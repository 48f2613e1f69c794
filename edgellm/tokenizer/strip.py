"""Special tokens that swallow the white space beside them. The format has no key for it, only the model's name."""

from __future__ import annotations

from edgellm.tokenizer.fields import Fields
from edgellm.tokenizer.vocabulary import TokenType, Vocabulary

_PHI_3_KEEPS = (b"<unk>", b"<s>", b"<|endoftext|>")
_MASKED_BPE = ("jina-v2-de", "jina-v2-es", "jina-v2-code")
_MASKED_ARCHITECTURES = ("nomic-bert-moe", "jina-bert-v3")


def strips_before(fields: Fields, vocabulary: Vocabulary) -> frozenset[int]:
    """The tokens, if any, that swallow the white space before them: the masks of some models for embeddings."""
    name, architecture = _names(fields)
    mask = None
    if fields.text("pre") in _MASKED_BPE or architecture in _MASKED_ARCHITECTURES:
        mask = vocabulary.find(b"<mask>")
    elif "modern-bert" in name or "modernbert" in name:
        mask = vocabulary.find(b"[MASK]")
    return frozenset() if mask is None else frozenset((mask,))


def strips_after(fields: Fields, vocabulary: Vocabulary) -> frozenset[int]:
    """The tokens, if any, that swallow the white space after them: Phi-3's markers."""
    name, architecture = _names(fields)
    # Phi 4 mini has the same architecture with another vocabulary, whose markers swallow nothing.
    is_phi_3 = architecture == "phi3" or "phi-3" in name or "phi3" in name
    if not is_phi_3 or fields.text("model") != "llama":
        return frozenset()
    tokens = vocabulary.ids_of_type(TokenType.CONTROL, TokenType.USER_DEFINED)
    return frozenset(token for token in tokens if vocabulary.piece(token) not in _PHI_3_KEEPS)


def _names(fields: Fields) -> tuple[str, object]:
    metadata = fields.metadata
    return str(metadata.get("general.name", "")).lower(), metadata.get("general.architecture")
