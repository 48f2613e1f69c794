"""Tiny model files: the conformance models with a vocabulary, written by our own writer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgellm import dtypes
from edgellm.gguf import ValueType, write
from tests.support.conformance import DATA, recipe

NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6

UNK, BOS, EOS, TURN, END = range(5)
"""Ids of the special tokens: the last two are <|turn|> and <|im_end|>, of which the second ends a generation."""

_WORDS = ["▁hello", "▁world", "hello", "▁", *"abcdefghijklmnopqrstuvwxyz", *"ABCDEFGHIJ", *" .,:!?'<>|_\n"]

CHATML = (
    "{% for m in messages %}<|turn|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)


def vocabulary(pieces: Sequence[str] = (), **changes: Any) -> dict[str, Any]:
    """Return the metadata of a SentencePiece vocabulary that can spell anything; `pieces` come last, in order.

    Keywords replace ``tokenizer.ggml`` keys; None removes one.
    """
    rows = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL), ("<|turn|>", CONTROL), ("<|im_end|>", CONTROL)]
    rows += [(f"<0x{byte:02X}>", BYTE) for byte in range(256)]
    rows += [(word, NORMAL) for word in _WORDS]
    rows += [(piece.replace(" ", "▁"), NORMAL) for piece in pieces]
    values: dict[str, Any] = {
        "model": "llama",
        "tokens": [piece for piece, _ in rows],
        "token_type": [kind for _, kind in rows],
        "scores": [-float(i) for i in range(len(rows))],
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "unknown_token_id": UNK,
        "add_space_prefix": False,
        **changes,
    }
    return {f"tokenizer.ggml.{key}": value for key, value in values.items() if value is not None}


def first_piece() -> int:
    """Return the id of the first of the `pieces` given to `vocabulary`."""
    return 5 + 256 + len(_WORDS)


def write_tiny(
    path: Path,
    *,
    family: str = "llama",
    vocab: dict[str, Any] | None = None,
    n_layer: int = 2,
    folder: Path = DATA,
    **metadata: Any,
) -> Path:
    """Write a model of one or two layers of float32 weights; without `vocab` it has 128 ids and no vocabulary.

    Keywords replace metadata keys, with ``__`` for the dots; None removes one.
    """
    model = recipe(f"{family}-dense", lean=True, folder=folder)
    pairs: dict[str, Any] = {key: _typed(model.kinds[key], value) for key, value in model.metadata.items()}
    n_vocab = 128
    if vocab is not None:
        n_vocab = len(vocab["tokenizer.ggml.tokens"])
        pairs |= vocab
        pairs[f"{family}.vocab_size"] = n_vocab
    pairs[f"{family}.block_count"] = n_layer
    for key, value in metadata.items():
        pairs[key.replace("__", ".")] = value
    tensors = {}
    for name, shape in model.tensors.items():
        if name.startswith("blk.") and int(name.split(".")[1]) >= n_layer:
            continue
        if name in ("token_embd.weight", "output.weight", "output.bias"):
            model.tensors[name] = (*shape[:-1], n_vocab)
        array = np.ascontiguousarray(model.array(name))
        tensors[name] = (dtypes.by_name("F32"), model.tensors[name], array)
    write(path, {key: value for key, value in pairs.items() if value is not None}, tensors)
    return path


def _typed(kind: str, value: Any) -> Any:
    return value if kind.startswith("ARRAY") else (ValueType[kind], value)
