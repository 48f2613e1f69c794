"""Real vocabularies: the ids of the models' own tokenizers, exactly."""

from __future__ import annotations

import json
import lzma
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from edgellm.tokenizer import Tokenizer, load_tokenizer

NAMES = ["command-r", "deepseek-coder", "deepseek-llm", "falcon", "gpt-2", "llama-bpe", "llama-spm", "mpt", "phi-3"]
NAMES += ["qwen2", "qwen35", "refact", "starcoder"]
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


def vectors_folder() -> Path:
    default = Path(__file__).parents[2] / ".." / "shared"
    folder = Path(os.environ.get("EDGELLM_VECTORS", default)) / "tokenizers"
    if not folder.is_dir():
        message = f"no tokenizer vectors in {folder}; set EDGELLM_VECTORS to the folder that has them"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return folder


def read_metadata(data: bytes) -> dict[str, Any]:
    """The metadata of a well-formed GGUF file, strings in arrays as bytes."""
    place = 24

    def take(code: str, count: int = 1) -> tuple[Any, ...]:
        nonlocal place
        layout = struct.Struct(f"<{count}{code}")
        place += layout.size
        return layout.unpack_from(data, place - layout.size)

    def take_string() -> bytes:
        nonlocal place
        (length,) = take("Q")
        place += length
        return data[place - length : place]

    metadata: dict[str, Any] = {}
    for _ in range(struct.unpack_from("<Q", data, 16)[0]):
        key, (kind,) = take_string().decode(), take("I")
        if kind == 8:
            metadata[key] = take_string().decode()
        elif kind == 9:
            (element,), (count,) = take("I"), take("Q")
            strings = element == 8
            metadata[key] = [take_string() for _ in range(count)] if strings else list(take(_SCALARS[element], count))
        else:
            (metadata[key],) = take(_SCALARS[kind])
    return metadata


@pytest.fixture(scope="module", params=NAMES)
def case(request: pytest.FixtureRequest) -> tuple[Tokenizer, dict[str, list[tuple[str, list[int]]]]]:
    """A tokenizer, and its vectors: text and ids."""
    folder = vectors_folder()
    data = lzma.decompress((folder / f"{request.param}.gguf.xz").read_bytes())
    vectors = json.loads((folder / "vectors.json").read_text("utf-8"))[request.param]
    return load_tokenizer(read_metadata(data), request.param), vectors


@pytest.mark.parametrize("kind", ["reference", "peer"])
def test_ids_are_exact(case, kind):
    tokenizer, vectors = case
    assert len(vectors[kind]) > 40
    for text, ids in vectors[kind]:
        assert tokenizer.encode(text, add_special=False) == ids, text


def test_text_comes_back(case):
    tokenizer, vectors = case
    for text, ids in vectors["reference"] + vectors["peer"]:
        assert tokenizer.decode(ids) == text


def test_whole_words_of_llama_3(case):
    tokenizer, _ = case
    if tokenizer.n_vocab == 128256:
        assert len(tokenizer.encode(" Việt", add_special=False)) == 1
