"""The vocabulary of a BERT as GGUF spells it: ``▁word`` and its continuation ``piece``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgellm.conversion.safetensors import read_json
from edgellm.errors import ModelFormatError, ModelNotFoundError, UnsupportedModelError

NORMAL, CONTROL, UNUSED = 1, 3, 5
_ROLES = {"bos": "[CLS]", "cls": "[CLS]", "eos": "[SEP]", "seperator": "[SEP]", "unknown": "[UNK]", "padding": "[PAD]"}
_ROLES["mask"] = "[MASK]"
"""Role in the metadata (one is misspelled there) → the token that BERT has for it."""


def vocabulary(folder: Path, n_vocab: int) -> dict[str, Any]:
    """Return the ``tokenizer.ggml`` metadata of a folder's WordPiece vocabulary.

    n_vocab: rows of the embedding; where the vocabulary is shorter, unused tokens fill it up.

    Raises ModelNotFoundError, ModelFormatError, UnsupportedModelError.
    """
    tokens, lowercase, strip_accents = _read(folder)
    if len(tokens) > n_vocab:
        raise ModelFormatError(f"{folder}: the vocabulary has {len(tokens)} tokens, the embedding {n_vocab} rows")
    ids = {token: i for i, token in enumerate(tokens)}
    types = [CONTROL if token in _ROLES.values() else NORMAL for token in tokens]
    spelled = [_spelled(token, kind) for token, kind in zip(tokens, types, strict=True)]
    spare = range(len(tokens), n_vocab)
    return {
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.tokens": [*spelled, *(f"[PAD{i}]" for i in spare)],
        "tokenizer.ggml.token_type": [*types, *(UNUSED for _ in spare)],
        **{f"tokenizer.ggml.{role}_token_id": ids[token] for role, token in _ROLES.items() if token in ids},
        "tokenizer.ggml.normalizer.lowercase": lowercase,
        "tokenizer.ggml.normalizer.strip_accents": strip_accents,
    }


def _spelled(token: str, kind: int) -> str:
    if kind == CONTROL:
        return token
    return token[2:] if token.startswith("##") else f"▁{token}"


def _read(folder: Path) -> tuple[list[str], bool, bool]:
    """Return the tokens in order, and whether text is lower-cased and loses its accents."""
    path = folder / "tokenizer.json"
    if path.is_file():
        return _from_json(path)
    path = folder / "vocab.txt"
    if not path.is_file():
        raise ModelNotFoundError(f"{folder} has neither a tokenizer.json nor a vocab.txt")
    settings = folder / "tokenizer_config.json"
    config = read_json(settings) if settings.is_file() else {}
    try:
        tokens = path.read_text("utf-8").rstrip("\n").split("\n")
    except UnicodeDecodeError as error:
        raise ModelFormatError(f"{path}: not UTF-8: {error}") from None
    return tokens, *_normal(config.get("do_lower_case", True), config.get("strip_accents"))


def _from_json(path: Path) -> tuple[list[str], bool, bool]:
    content = read_json(path)
    model = content.get("model")
    if not isinstance(model, Mapping) or model.get("type", "WordPiece") != "WordPiece":
        kind = model.get("type") if isinstance(model, Mapping) else None
        raise UnsupportedModelError(f"{path}: a vocabulary of type {kind!r:.40} cannot be converted, WordPiece can")
    if model.get("continuing_subword_prefix", "##") != "##":
        raise UnsupportedModelError(f"{path}: continuations must begin with '##'")
    ids = model.get("vocab")
    if not isinstance(ids, Mapping) or sorted(map(str, ids.values())) != sorted(map(str, range(len(ids)))):
        raise ModelFormatError(f"{path}: the vocabulary does not number its tokens from 0")
    normalizer = content.get("normalizer") or {}
    if normalizer.get("type") != "BertNormalizer":
        raise UnsupportedModelError(f"{path}: a normalizer of type {normalizer.get('type')!r:.40} cannot be converted")
    return sorted(ids, key=ids.__getitem__), *_normal(normalizer.get("lowercase"), normalizer.get("strip_accents"))


def _normal(lowercase: Any, strip_accents: Any) -> tuple[bool, bool]:
    """Accents go with the capitals unless the file says otherwise."""
    lowers = bool(lowercase)
    return lowers, lowers if strip_accents is None else bool(strip_accents)
