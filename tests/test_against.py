"""Measuring against llama.cpp, with a stand-in for its package: what is asked of it, and what comes back."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import edgellm
from edgellm.against import Peer, compare
from tests.support.tiny import write_tiny

N_VOCAB = 32


class Library(ModuleType):
    """What `Peer` uses of the package: the likeliest token after a row is the row's token plus one."""

    llama_token = ctypes.c_int32
    llama_log_callback = staticmethod(lambda function: function)

    def __init__(self) -> None:
        super().__init__("llama_cpp")
        self.decoded: list[list[tuple[int, int]]] = []
        self.parameters: Any = None
        self.freed: list[str] = []
        self._rows: list[int] = []
        for name in ("llama_log_set", "llama_backend_init", "llama_memory_clear", "llama_batch_free"):
            setattr(self, name, lambda *_: None)
        self.llama_get_memory = lambda _: "memory"
        self.llama_model_default_params = SimpleNamespace
        self.llama_context_default_params = SimpleNamespace
        self.llama_model_load_from_file = lambda path, _: Path(path.decode()).exists()
        self.llama_model_get_vocab = lambda _: "vocab"
        self.llama_vocab_n_tokens = lambda _: N_VOCAB
        self.llama_free = lambda _: self.freed.append("context")
        self.llama_model_free = lambda _: self.freed.append("model")

    def llama_init_from_model(self, _: object, parameters: Any) -> bool:
        self.parameters = parameters
        return True

    def llama_batch_get_one(self, ids: Any, n: int) -> Any:
        return SimpleNamespace(n_tokens=n, token=list(ids), seq_id=[[0]] * n)

    def llama_batch_init(self, n: int, _: int, __: int) -> Any:
        rows = {name: [0] * n for name in ("token", "pos", "n_seq_id", "logits")}
        return SimpleNamespace(n_tokens=0, seq_id=[[0] for _ in range(n)], **rows)

    def llama_decode(self, _: object, batch: Any) -> int:
        n = batch.n_tokens
        self._rows = batch.token[:n]
        self.decoded.append([(token, seq[0]) for token, seq in zip(self._rows, batch.seq_id, strict=False)])
        return 0

    def llama_get_logits_ith(self, _: object, row: int) -> Any:
        logits = (ctypes.c_float * N_VOCAB)()
        logits[(self._rows[row] + 1) % N_VOCAB] = 1.0
        return logits


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    found = Library()
    monkeypatch.setitem(sys.modules, "llama_cpp", found)
    return found


def test_the_peer_writes_what_is_likeliest(library: Library) -> None:
    with Peer(__file__, 100, 2) as peer:
        assert peer.decode([3, 4], 3) > 0
        assert [rows for rows in library.decoded if len(rows) == 1] == [[(5, 0)], [(6, 0)], [(7, 0)]]
    assert library.freed == ["context", "model"]
    assert (library.parameters.n_threads, library.parameters.n_ctx) == (2, 100)


def test_the_peer_writes_several_texts_at_once(library: Library) -> None:
    with Peer(__file__, 100, 2, 3) as peer:
        assert peer.decode_together([[1], [10], [20, 21]], 2) > 0
    assert library.decoded[-2:] == [[(2, 0), (11, 1), (22, 2)], [(3, 0), (12, 1), (23, 2)]]
    assert library.parameters.n_seq_max == 3


def test_both_are_measured(library: Library, tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "m.gguf")
    names = [ratio.name for ratio in compare(path, prompt=8, generate=2, repeat=1, batch=2, kv_type="f16")]
    assert names == ["prefill, 8 tokens", "decode, 2 tokens", "decode, 2 at once"]


def test_a_file_that_the_peer_cannot_load_is_named(library: Library) -> None:
    with pytest.raises(edgellm.BackendError, match=r"nowhere\.gguf: llama\.cpp cannot load"):
        Peer("nowhere.gguf", 100, 2)


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    with pytest.raises(edgellm.BackendError, match=r"edgellm\[bench\]"):
        Peer(__file__, 100, 2)
