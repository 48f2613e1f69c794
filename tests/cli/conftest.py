"""The command line run in this process, with a scripted model behind it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import edgellm
from edgellm import catalog
from edgellm.cli import main
from edgellm.dtypes import by_name
from edgellm.gguf import write
from tests.support.scripted import ScriptedModel

VALUES = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.context_length": 3000,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 96,
    "llama.attention.head_count": 2,
    "llama.attention.head_count_kv": 1,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.vocab_size": 50,
}
"""Metadata of a llama small enough to count by hand: heads of 32, one key head, two layers."""


def llama_tensors() -> dict[str, Any]:
    """Return its tensors: norms of float32, everything else Q8_0, output tied to the embedding."""
    shapes = {"token_embd.weight": (64, 50), "output_norm.weight": (64,)}
    for i in range(2):
        shapes |= {f"blk.{i}.{norm}_norm.weight": (64,) for norm in ("attn", "ffn")}
        shapes |= {f"blk.{i}.attn_{part}.weight": (64, 64) for part in ("q", "output")}
        shapes |= {f"blk.{i}.attn_{part}.weight": (64, 32) for part in ("k", "v")}
        shapes |= {f"blk.{i}.ffn_{part}.weight": (64, 96) for part in ("gate", "up")}
        shapes |= {f"blk.{i}.ffn_down.weight": (96, 64)}
    tensors = {}
    for name, shape in shapes.items():
        dtype = by_name("F32" if "norm" in name else "Q8_0")
        tensors[name] = (dtype, shape, bytes(math.prod(shape) // dtype.block * dtype.nbytes))
    return tensors


@pytest.fixture
def gguf_file(tmp_path: Path) -> Callable[..., Path]:
    """Write the small llama, changed: ``gguf_file({key: value}, {tensor: (dtype, shape, data)})``; None removes."""

    def make(values: dict[str, Any] | None = None, tensors: dict[str, Any] | None = None) -> Path:
        kept = {**VALUES, **(values or {})}
        stored = {**llama_tensors(), **(tensors or {})}
        path = tmp_path / "small.gguf"
        write(
            path,
            {key: value for key, value in kept.items() if value is not None},
            {name: tensor for name, tensor in stored.items() if tensor is not None},
        )
        return path

    return make


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and no debugging."""
    folder = tmp_path / "home"
    monkeypatch.setenv("EDGELLM_HOME", str(folder))
    monkeypatch.delenv("EDGELLM_DEBUG", raising=False)
    return folder


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ScriptedModel]:
    """Put a scripted model in the place of `edgellm.Model`; every name of a model is found."""

    def put(script: Callable[[Any], Iterable[str]] | Iterable[str], **settings: Any) -> ScriptedModel:
        chunks = script if callable(script) else lambda _prompt, fixed=tuple(script): fixed
        model = ScriptedModel(chunks, **settings)
        monkeypatch.setattr(edgellm, "Model", model.open, raising=False)
        monkeypatch.setattr(catalog, "resolve", lambda name, **_: Path(name))
        return model

    return put


@pytest.fixture
def invoke() -> Callable[..., Result]:
    """Run a command: ``invoke("run", "Hello", input="…")``; standard error is kept apart."""

    def call(*arguments: str, input: str | bytes | None = None) -> Result:
        return CliRunner().invoke(main, arguments, input=input, prog_name="edgellm")

    return call
