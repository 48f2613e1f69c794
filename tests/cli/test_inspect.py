from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from edgellm.dtypes import by_name

Invoke = Callable[..., Result]
GgufFile = Callable[..., Path]
F32 = by_name("F32")
WEIGHTS = (50 * 64 + 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96)) // 32 * 34 + 5 * 64 * 4
"""Bytes of the small llama: Q8_0 blocks of 32 in 34 bytes, and five norms of float32."""


def test_metadata_tensors_types_and_memory_are_shown(gguf_file: GgufFile, invoke: Invoke) -> None:
    path = gguf_file({"general.name": "Tiny", "llama.rope.freq_base": 10000.5})
    result = invoke("inspect", str(path))
    assert (result.exit_code, result.stderr) == (0, "")
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["general.name", "string", "Tiny"] in rows
    assert ["llama.rope.freq_base", "float32", "10000.5"] in rows
    assert ["blk.0.attn_k.weight", "64", "×", "32", "Q8_0", "2.2", "kB"] in rows
    assert ["output_norm.weight", "64", "F32", "256", "B"] in rows
    assert ["F32", "5", "tensors", "320", "parameters", "1.3", "kB"] in rows
    # Two layers of one key and one value head, 32 halves each.
    assert ["keys", "and", "values,", "each", "token", "256", "B"] in rows


def test_json_has_the_same_figures(gguf_file: GgufFile, invoke: Invoke) -> None:
    report = json.loads(invoke("inspect", "--json", str(gguf_file())).stdout)
    assert report["metadata"]["llama.block_count"] == 2
    assert report["metadata_types"]["llama.attention.layer_norm_rms_epsilon"] == "float32"
    assert {"name": "blk.1.ffn_down.weight", "shape": [96, 64], "type": "Q8_0", "bytes": 96 * 64 // 32 * 34} in report[
        "tensors"
    ]
    assert report["tensor_types"]["F32"] == {"tensors": 5, "parameters": 320, "bytes": 1280}
    memory = report["memory"]
    assert memory["weights_bytes"] == WEIGHTS
    assert memory["kv_bytes_per_token"] == 256
    assert [entry["n_ctx"] for entry in memory["contexts"]] == [2048, 3000]
    for entry in memory["contexts"]:
        assert entry["kv_bytes"] >= entry["n_ctx"] * 256
        assert entry["total_bytes"] > entry["kv_bytes"] + WEIGHTS


def test_long_values_are_shortened_and_arrays_summed_up(gguf_file: GgufFile, invoke: Invoke) -> None:
    path = gguf_file({"tokenizer.chat_template": "x" * 5000, "test.words": [f"word{i}" for i in range(1000)]})
    text = invoke("inspect", str(path)).stdout
    assert "(5000 characters)" in text
    assert "string × 1000" in text
    assert "word0, word1, word2, word3, word4, …" in text
    assert max(len(line) for line in text.splitlines()) < 200
    report = json.loads(invoke("inspect", "--json", str(path)).stdout)
    assert report["metadata"]["test.words"] == {
        "count": 1000,
        "first": ["word0", "word1", "word2", "word3", "word4"],
    }


def test_control_characters_in_values_are_escaped(gguf_file: GgufFile, invoke: Invoke) -> None:
    path = gguf_file({"test.text": "a\x1b]0;b\x07\nc", "test.list": ["\x9b2J"]})
    text = invoke("inspect", str(path)).stdout
    assert not any(c in text for c in "\x1b\x07\x9b")
    assert r"a\x1b]0;b\x07\nc" in text
    assert r"\x9b2J" in text
    report = invoke("inspect", "--json", str(path)).stdout
    assert not any(c in report for c in "\x1b\x07\x9b")
    assert json.loads(report)["metadata"]["test.list"]["first"] == ["\x9b2J"]


@pytest.mark.parametrize("name", ["test.ESC[2J", "blk.ESC.weight"])
def test_control_characters_in_names_do_not_reach_the_terminal(gguf_file: GgufFile, invoke: Invoke, name: str) -> None:
    path = gguf_file({name: 1}, {name: (F32, (1,), bytes(4))})
    path.write_bytes(path.read_bytes().replace(b"ESC", b"\x1b\x1b\x1b"))
    result = invoke("inspect", str(path))
    assert "\x1b" not in result.output
    assert r"\x1b\x1b\x1b" in result.output


def test_numbers_that_json_lacks_are_texts(gguf_file: GgufFile, invoke: Invoke) -> None:
    path = gguf_file({"test.nan": float("nan"), "test.many": [float("inf"), 1.0]})
    metadata = json.loads(invoke("inspect", "--json", str(path)).stdout, parse_constant=_refuse)["metadata"]
    assert metadata["test.nan"] == "nan"
    assert metadata["test.many"]["first"] == ["inf", 1.0]


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def test_an_unknown_architecture_is_shown_without_an_estimate(gguf_file: GgufFile, invoke: Invoke) -> None:
    result = invoke("inspect", str(gguf_file({"general.architecture": "strange"})))
    assert result.exit_code == 0
    assert "no estimate" in result.stdout
    assert "'strange'" in result.stdout


def test_check_passes_what_can_run(gguf_file: GgufFile, invoke: Invoke) -> None:
    result = invoke("inspect", "--check", str(gguf_file()))
    assert (result.exit_code, result.stdout) == (0, "This model can run here.\n")


def test_check_lists_everything_that_is_missing(gguf_file: GgufFile, invoke: Invoke) -> None:
    path = gguf_file(
        {"tokenizer.ggml.model": "unheard-of"},
        {
            "blk.1.ffn_up.weight": None,
            "extra.weight": (F32, (3,), bytes(12)),
            "output_norm.weight": (F32, (8,), bytes(32)),
        },
    )
    result = invoke("inspect", "--check", str(path))
    assert result.exit_code == 1
    for part in ("blk.1.ffn_up.weight", "extra.weight", "output_norm.weight", "unheard-of"):
        assert part in result.stdout
    report = json.loads(invoke("inspect", "--check", "--json", str(path)).stdout)
    assert report["runs"] is False
    assert len(report["problems"]) == 4


def test_check_names_an_unknown_architecture(gguf_file: GgufFile, invoke: Invoke) -> None:
    result = invoke("inspect", "--check", str(gguf_file({"general.architecture": "strange"})))
    assert result.exit_code == 1
    assert "'strange'" in result.stdout


def test_a_doubtful_vocabulary_is_shown_and_still_runs(gguf_file: GgufFile, invoke: Invoke) -> None:
    path = gguf_file(
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "unheard\x1bof",
            "tokenizer.ggml.tokens": [chr(0x100 + k) for k in range(50)],
            "tokenizer.ggml.merges": ["\u0100 \u0101"],
        }
    )
    text = invoke("inspect", str(path)).stdout
    assert "\nWarnings\n  tokenizer.ggml.pre is 'unheard\\x1bof'" in text
    assert "\x1b" not in text
    assert len(json.loads(invoke("inspect", "--json", str(path)).stdout)["warnings"]) == 2
    assert invoke("inspect", "--check", str(path)).exit_code == 0


def test_a_file_that_is_no_model_is_one_line(tmp_path: Path, invoke: Invoke) -> None:
    path = tmp_path / "text.gguf"
    path.write_text("not a model at all")
    result = invoke("inspect", str(path))
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.splitlines()) == 1
