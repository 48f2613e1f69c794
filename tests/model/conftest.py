"""Tiny models for the tests of `edgellm.Model`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import edgellm
from tests.support.fake import FakeBackend, script
from tests.support.tiny import CHATML, vocabulary, write_tiny

CHAT = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="session")
def files(tmp_path_factory) -> dict[str, Path]:
    """Tiny models: with a vocabulary that wants BOS, one that does not, and none; full attention and windows."""
    root = tmp_path_factory.mktemp("models")
    chat = {"tokenizer.chat_template": CHATML}
    bare = vocabulary(add_bos_token=False)
    return {
        "bos": write_tiny(root / "bos.gguf", vocab=vocabulary() | chat, general__license="apache-2.0"),
        "plain": write_tiny(root / "plain.gguf", vocab=bare),
        "ids": write_tiny(root / "ids.gguf"),
        "windows": write_tiny(root / "windows.gguf", family="gemma3", gemma3__attention__sliding_window=24),
    }


@pytest.fixture(scope="session")
def model(files):
    with edgellm.Model(files["bos"], backend="reference") as m:
        yield m


@pytest.fixture(scope="session")
def ids_model(files):
    with edgellm.Model(files["ids"], backend="reference") as m:
        yield m


def ids_of(generation) -> list[int]:
    for _ in generation:
        pass
    return generation.token_ids


def prompt(n: int, seed: int = 0, n_vocab: int = 128) -> list[int]:
    return np.random.default_rng(seed).integers(0, n_vocab, n).tolist()


@pytest.fixture
def scripted(files, monkeypatch):
    """A factory of models that say the given ids after a prompt of any length."""
    opened = []

    def make(ids: list[int], name: str = "bos", **arguments):
        backend = FakeBackend(script(ids, 0))
        monkeypatch.setattr("edgellm.loading.get_backend", lambda name: backend)
        opened.append(edgellm.Model(files[name], **arguments))
        return opened[-1], backend

    yield make
    for m in opened:
        m.close()
