"""Tiny models that answer with a given text, in which control tokens may be spelled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import edgellm
from tests.support.fake import FakeBackend
from tests.support.tiny import CHATML, CONTROL, EOS, vocabulary, write_tiny

CONTROLS = (
    *("<tool_call>", "</tool_call>", "<other>", "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>"),
    *("<|call|>", "<|return|>"),
)
OPENING = "<|turn|>assistant\n"
TEMPLATE = CHATML + "{# <tool_call> <think> #}"
ASK = [{"role": "user", "content": "hello"}]

Say = Callable[..., edgellm.Model]


def with_controls(*pieces: str) -> dict[str, Any]:
    """The metadata of a vocabulary with more control tokens."""
    metadata = vocabulary(['"', "{", "}"], add_bos_token=False)
    for piece in pieces:
        metadata["tokenizer.ggml.tokens"].append(piece)
        metadata["tokenizer.ggml.token_type"].append(CONTROL)
        metadata["tokenizer.ggml.scores"].append(0.0)
    return metadata


def talker(
    monkeypatch: pytest.MonkeyPatch, folder: Path, replies: Sequence[str], template: str, end: bool, opening: str
) -> Any:
    """A model that says one of `replies` after the other, each after a prompt that ends with `opening`."""
    path = folder / "talker.gguf"
    write_tiny(
        path,
        vocab=with_controls(*CONTROLS),
        tokenizer__chat_template=template,
        llama__context_length=8192,
    )
    backend = FakeBackend(lambda history: 0)
    monkeypatch.setattr("edgellm.loading.get_backend", lambda name: backend)
    model = edgellm.Model(path, n_ctx=4096)
    said = [model.tokenize(text, add_special=False, parse_special=True) + [EOS] * end for text in replies]
    begin = model.tokenize(opening, add_special=False, parse_special=True)

    def rule(history: list[int]) -> int:
        starts = [i for i in range(len(history)) if history[i : i + len(begin)] == begin]
        ids = said[min(len(starts), len(said)) - 1]
        return ids[(len(history) - starts[-1] - len(begin)) % len(ids)]

    backend.rule = backend.executable.rule = rule
    return model
