"""The tiny conformance models: recipes, weights from a frozen generator, and reference logits.

A recipe lists the metadata and the tensors of a small model; a lean one has only the keys that
change its logits.  The golden logits were measured with llama.cpp at float32 on the same weights.
"""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgellm import dtypes
from edgellm.backends.base import Weight

DATA = Path(__file__).parents[1] / "data" / "conformance"
NAMES = tuple(sorted(path.stem for path in (DATA / "recipes").glob("*.json")))
SHARED = Path(os.environ.get("EDGELLM_VECTORS") or Path(__file__).parents[3] / "shared") / "conformance"
"""The same for every architecture there is; not a part of this repository."""
N_TOKENS = 40

_SEED = 20261130


@dataclass(frozen=True)
class Recipe:
    """A model without its weights."""

    metadata: dict[str, Any]
    kinds: dict[str, str]
    """GGUF value type of each metadata key."""
    tensors: dict[str, tuple[int, ...]]
    """Shapes, fastest axis first; all are float32."""
    gain: dict[str, float] = field(default_factory=dict)

    def array(self, name: str) -> npt.NDArray[np.float32]:
        """Draw the tensor `name`, slowest axis first."""
        gain = next((g for part, g in self.gain.items() if part in name), 1.0)
        return _draw(name, self.tensors[name]) * np.float32(gain)

    def weights(self) -> dict[str, Weight]:
        """Draw all tensors as a reader would hand them out."""
        return {name: as_weight(self.array(name)) for name in self.tensors}


def recipe(name: str, *, lean: bool = False, folder: Path = DATA) -> Recipe:
    """Load one recipe."""
    raw = json.loads((folder / ("lean" if lean else "recipes") / f"{name}.json").read_text())
    return Recipe(
        {key: value for key, _, value in raw["kv"]},
        {key: kind for key, kind, _ in raw["kv"]},
        {tensor: tuple(shape) for tensor, shape, _ in raw["tensors"]},
        raw.get("gain", {}),
    )


def folder_of(name: str) -> Path:
    """Return where a recipe and its logits are: beside the repository, or in it for those of its own."""
    return SHARED if (SHARED / "recipes" / f"{name}.json").is_file() else DATA


@cache
def golden(name: str, folder: Path = DATA) -> npt.NDArray[np.float32]:
    """Return the reference logits ``[40, n_vocab]`` of one model."""
    with np.load(folder / "golden.npz") as archive:
        return np.asarray(archive[name])


def need_shared() -> None:
    """Skip the test where the shared recipes are not there; in CI (environment variable CI) it fails."""
    if not SHARED.is_dir():
        reason = f"no conformance recipes in {SHARED}: set EDGELLM_VECTORS"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


def tokens() -> npt.NDArray[np.int32]:
    """Return the 40 token ids that the golden logits belong to."""
    return golden("_tokens").astype(np.int32)


def nmse(found: npt.NDArray[np.float32], expected: npt.NDArray[np.float32]) -> float:
    """Return the sum of squared differences over the sum of squares of `expected`."""
    a, b = found.astype(np.float64), expected.astype(np.float64)
    return float(np.sum((a - b) ** 2) / np.sum(b**2))


def as_weight(array: npt.NDArray[np.float32]) -> Weight:
    """Wrap a float32 array, slowest axis first."""
    data = np.ascontiguousarray(array, np.float32)
    return Weight(dtypes.by_name("F32"), data.shape[::-1], memoryview(data).cast("B"))


def write_gguf(model: Recipe, path: Path) -> None:
    """Write the model with its weights as a GGUF file."""
    import gguf

    writer = gguf.GGUFWriter(str(path), model.metadata["general.architecture"])
    for key, value in model.metadata.items():
        kind = model.kinds[key]
        if key == "general.architecture" or value == []:
            continue
        if kind.startswith("ARRAY:"):
            sub_type = gguf.GGUFValueType[kind.removeprefix("ARRAY:")]
            writer.add_key_value(key, value, gguf.GGUFValueType.ARRAY, sub_type=sub_type)
        else:
            writer.add_key_value(key, value, gguf.GGUFValueType[kind])
    for name in model.tensors:
        writer.add_tensor(name, model.array(name))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _draw(name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    rng = np.random.RandomState((zlib.crc32(name.encode()) ^ _SEED) & 0x7FFFFFFF)
    array = (0.1 * rng.standard_normal(shape[::-1])).astype(np.float32)
    if "ssm_a" in name:
        array = -np.abs(array)
    elif "norm" in name and name.endswith("weight"):
        array += 1.0
    return array
