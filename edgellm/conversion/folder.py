"""Writing a model's folder as one GGUF file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from edgellm import dtypes
from edgellm.arguments import choice
from edgellm.conversion.families import Family, family_of
from edgellm.conversion.safetensors import Stored, open_folder, read_json
from edgellm.conversion.wordpiece import vocabulary
from edgellm.errors import ArgumentError, ModelFormatError, ModelNotFoundError
from edgellm.gguf import ValueType, write

TensorType = Literal["f32", "f16", "q8_0"]

_FILE_TYPES = {"f32": 0, "f16": 1, "q8_0": 7}
"""``general.file_type``."""
_ALWAYS_F32 = ("position_embd.weight", "token_types.weight")
"""Tables that are added, not multiplied, and small: as other converters keep them."""
_POOLINGS = {"pooling_mode_mean_tokens": 1, "pooling_mode_cls_token": 2, "pooling_mode_lasttoken": 3}
"""Flags of sentence-transformers → ``pooling_type``."""


def convert(
    source: str | os.PathLike[str], target: str | os.PathLike[str], *, type: TensorType = "f16", name: str | None = None
) -> Path:
    """Write the model in the folder `source` as the GGUF file `target`, and return its path.

    source: a folder with ``config.json``, ``model.safetensors`` (or several with an index), and a tokenizer.
    type: of the matrices, "f32", "f16" or "q8_0"; vectors stay float32, as do rows that q8_0 does not divide.
    name: ``general.name``; None: the folder's name.

    Models of the type ``bert`` and ``nomic_bert`` with a WordPiece vocabulary can be converted.  `target` appears when
    it is whole.

    Raises ModelNotFoundError for missing files, ModelFormatError for damaged ones, UnsupportedModelError for models
    that cannot be converted, ArgumentError.
    """
    folder, kind = Path(source).expanduser(), choice("type", type, tuple(_FILE_TYPES))
    if not folder.is_dir():
        raise ModelNotFoundError(f"there is no folder {folder}")
    out = Path(target).expanduser()
    if out.is_dir() or not out.parent.is_dir():
        raise ArgumentError(f"{out} cannot be written: give the path of a file in a folder that exists")
    config = read_json(folder / "config.json")
    family = family_of(config)
    found = open_folder(folder)
    tensors = _tensors(family, found, kind)
    shape = tensors.get("token_embd.weight", (None, ()))[1]
    if len(shape) != 2:
        raise ModelFormatError(f"{folder}: the model has no matrix of token embeddings")
    metadata = {
        "general.architecture": family.architecture,
        "general.type": "model",
        "general.name": name or folder.resolve().name,
        "general.file_type": (ValueType.UINT32, _FILE_TYPES[kind]),
        "general.quantization_version": (ValueType.UINT32, 2),
        **{key: _typed(value) for key, value in family.metadata(config).items()},
        f"{family.architecture}.attention.causal": False,
        **_pooling(folder, family),
        "tokenizer.ggml.token_type_count": (ValueType.UINT32, _rows(tensors, "token_types.weight")),
        **{key: _typed(value) for key, value in vocabulary(folder, shape[1]).items()},
    }
    write(out, metadata, tensors)
    return out


def _tensors(family: Family, found: Mapping[str, Stored], kind: str) -> dict[str, Any]:
    tensors = {}
    for name, stored in found.items():
        target = family.rename(name)
        if target is not None:
            if target in tensors:
                raise ModelFormatError(f"{stored.path}: two weights would be {target}")
            tensors[target] = _tensor(target, stored.array(), kind)
    return tensors


def _tensor(name: str, array: npt.NDArray[np.float32], kind: str) -> tuple[dtypes.DType, tuple[int, ...], Any]:
    shape = array.shape[::-1]
    if array.ndim < 2 or name in _ALWAYS_F32 or kind == "f32":
        return dtypes.by_name("F32"), shape, np.ascontiguousarray(array)
    if kind == "q8_0" and shape[0] % 32 == 0:
        from gguf import GGMLQuantizationType, quants

        return dtypes.by_name("Q8_0"), shape, quants.quantize(array, GGMLQuantizationType.Q8_0)
    with np.errstate(over="ignore"):
        halves = array.astype(np.float16)
    if not np.isfinite(halves).all():
        raise ModelFormatError(f"{name} has values that float16 does not hold: convert with type f32")
    return dtypes.by_name("F16"), shape, halves


def _pooling(folder: Path, family: Family) -> dict[str, Any]:
    """Return what sentence-transformers' modules say; nothing where there are none."""
    path = folder / "1_Pooling" / "config.json"
    if not path.is_file():
        return {}
    chosen = [mode for mode, used in read_json(path).items() if mode.startswith("pooling_mode") and used is True]
    if len(chosen) != 1 or chosen[0] not in _POOLINGS:
        raise ModelFormatError(f"{path}: {' and '.join(chosen) or 'no mode'} cannot be told in a GGUF file")
    return {f"{family.architecture}.pooling_type": (ValueType.UINT32, _POOLINGS[chosen[0]])}


def _typed(value: Any) -> Any:
    """Sizes are unsigned and other numbers single, as other writers have them."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    return (ValueType.UINT32 if isinstance(value, int) else ValueType.FLOAT32), value


def _rows(tensors: Mapping[str, Any], name: str) -> int:
    return int(tensors[name][1][1]) if name in tensors else 1
