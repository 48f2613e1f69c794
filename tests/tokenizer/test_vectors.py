"""Real vocabularies: the ids of the models' own tokenizers, exactly."""

from __future__ import annotations

import json
import lzma
import os
import re
import struct
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edgellm.errors import VocabularyError
from edgellm.tokenizer import Tokenizer, load_tokenizer

NAMES = [
    "bert-bge",
    "command-r",
    "deepseek-coder",
    "deepseek-llm",
    "falcon",
    "gemma-4",
    "gpt-2",
    "llama-bpe",
    "llama-spm",
    "mpt",
]
NAMES += ["phi-3", "qwen2", "qwen35", "refact", "starcoder"]
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


def _has_spacing_mark_or_hangul(text: str) -> bool:
    return any(unicodedata.category(char) == "Mc" or "가" <= char <= "힣" for char in text)


# Where the model's own tokenizer agrees with us and not with the peer: how many texts of the random ones, and what
# all of them have.
PEER_DIFFERS: dict[str, tuple[int, Callable[[str], bool]]] = {
    # BERT strips only marks of the category Mn. The peer also drops spacing marks, and vowels of taken apart Hangul.
    "bert-bge": (11, _has_spacing_mark_or_hangul),
}
# Decoding gives words, not the text.
LOSSY = {"bert-bge"}


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


def load(name: str) -> Tokenizer:
    """The tokenizer of one of the real vocabularies."""
    return load_tokenizer(read_metadata(lzma.decompress((vectors_folder() / f"{name}.gguf.xz").read_bytes())), name)


@pytest.fixture(scope="module", params=NAMES)
def case(request: pytest.FixtureRequest) -> tuple[str, Tokenizer, dict[str, list[tuple[str, list[int]]]]]:
    """A name, its tokenizer, and its vectors: text and ids."""
    name: str = request.param
    return name, load(name), json.loads((vectors_folder() / "vectors.json").read_text("utf-8"))[name]


@pytest.fixture(scope="module")
def real(case) -> tuple[bool, Tokenizer]:
    """Whether text comes back as it was, and the tokenizer."""
    name, tokenizer, _ = case
    return name not in LOSSY, tokenizer


def test_ids_are_those_of_the_models_own_tokenizer(case):
    _, tokenizer, vectors = case
    assert len(vectors["reference"]) > 40
    for text, ids in vectors["reference"]:
        assert tokenizer.encode(text, add_special=False) == ids, text


def test_ids_differ_from_the_peers_only_where_it_is_known_why(case):
    name, tokenizer, vectors = case
    assert len(vectors["peer"]) > 100
    different = [text for text, ids in vectors["peer"] if tokenizer.encode(text, add_special=False) != ids]
    count, explains = PEER_DIFFERS.get(name, (0, lambda text: False))
    assert [text for text in different if not explains(text)] == []
    assert len(different) == count


def test_text_comes_back(case):
    name, tokenizer, vectors = case
    for text, ids in vectors["reference"] + vectors["peer"]:
        if name not in LOSSY:
            assert tokenizer.decode(ids) == text
        elif tokenizer.unk_id not in ids:
            assert tokenizer.encode(tokenizer.decode(ids), add_special=False) == ids


@settings(deadline=None, max_examples=40)
@given(st.text().filter(lambda text: "▁" not in text))
@example("\U00040000")
@example("\x03")
def test_any_text_comes_back_or_is_refused(real, text):
    exact, tokenizer = real
    try:
        ids = tokenizer.encode(text, add_special=False)
    except VocabularyError:
        # Some vocabularies lack bytes that only control characters and unassigned planes have.
        assert re.search("[\0-\x1f\U00040000-\U0010ffff]", text)
        return
    assert not exact or tokenizer.decode(ids) == text
    assert not any(tokenizer.is_control(token) and token != tokenizer.unk_id for token in ids)


def test_nothing_is_wrong_with_them(case):
    _, tokenizer, _ = case
    assert tokenizer.warnings == ()


def test_all_vectors_are_tried():
    assert sorted(NAMES) == sorted(json.loads((vectors_folder() / "vectors.json").read_text("utf-8")))


@pytest.mark.parametrize("case", ["llama-bpe"], indirect=True)
def test_whole_words_of_llama_3(case):
    assert len(case[1].encode(" Việt", add_special=False)) == 1
