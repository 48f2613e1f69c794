from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from edgellm import benchmark
from edgellm.dtypes import by_name
from edgellm.errors import VocabularyError
from edgellm.gguf import open_model

Invoke = Callable[..., Result]
GgufFile = Callable[..., Path]
KEYS = {
    "prefill_tps", "decode_tps", "load_s", "first_token_s", "peak_rss_mb", "read_gbps", "decode_gbps", "threads", "isa",
}  # fmt: skip


class TimedModel:
    """Takes 1 ms per prompt token and 10 ms per further token, by its own account."""

    has_vocabulary = True
    opened: dict[str, Any]
    asked: list[tuple[list[int], dict[str, Any]]]

    def __init__(self, path: Path, **arguments: Any) -> None:
        type(self).opened, type(self).asked = arguments, []
        self.info = SimpleNamespace(n_vocab=50, threads=arguments["threads"] or 1, isa="slow")

    @property
    def tokenizer(self) -> Any:
        if not self.has_vocabulary:
            raise VocabularyError("no vocabulary")
        return SimpleNamespace(eog_ids=frozenset({2, 3}))

    def generate(self, prompt: list[int], **keywords: Any) -> Any:
        self.asked.append((prompt, keywords))
        return TimedGeneration(len(prompt), keywords["max_tokens"])

    def __enter__(self) -> TimedModel:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class TimedGeneration:
    def __init__(self, n_prompt: int, n: int) -> None:
        first, rest = n_prompt / 1000, (n - 1) / 100
        self.timings = SimpleNamespace(
            prefill_tps=1000.0, decode_tps=100.0 if n > 1 else 0.0, first_token_s=first, prefill_s=first, decode_s=rest
        )

    def __iter__(self) -> Iterator[str]:
        return iter(["x"])


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> type[TimedModel]:
    monkeypatch.setattr(benchmark, "Model", TimedModel)
    monkeypatch.setattr(benchmark, "read_bandwidth", lambda threads: 10.0 * threads)
    return TimedModel


def test_json_has_exactly_the_promised_keys(timed: type[TimedModel], gguf_file: GgufFile, invoke: Invoke) -> None:
    result = invoke("bench", str(gguf_file()), "--json", "--threads", "2", "--prompt", "30", "--generate", "4")
    assert (result.exit_code, result.stderr) == (0, "")
    report = json.loads(result.stdout)
    assert report.keys() == KEYS
    assert report["prefill_tps"] == 1000.0
    assert report["decode_tps"] == 100.0
    assert report["first_token_s"] == 0.03
    assert report["read_gbps"] == 20.0
    assert (report["threads"], report["isa"]) == (2, "slow")
    assert report["peak_rss_mb"] > 10


def test_decoding_reads_the_weights_once_per_token(
    timed: type[TimedModel], gguf_file: GgufFile, invoke: Invoke
) -> None:
    path = gguf_file()
    report = json.loads(invoke("bench", str(path), "--json").stdout)
    with open_model(path) as file:
        weights = sum(tensor.nbytes for tensor in file.tensors.values())  # The embedding is the output matrix too.
    assert report["decode_gbps"] == pytest.approx(weights * 100 / 1e9)


def test_no_prompt_comes_twice(timed: type[TimedModel], gguf_file: GgufFile, invoke: Invoke) -> None:
    invoke("bench", str(gguf_file()), "--prompt", "30", "--generate", "4", "--repeat", "5", "--depth", "20")
    prompts = [tuple(prompt) for prompt, _ in timed.asked]
    assert [len(p) for p in prompts] == [16] + [30] * 5 + [20] * 5
    assert len(set(prompts)) == len(prompts)
    assert all(0 <= token < 50 for prompt in prompts for token in prompt)
    assert [keywords["max_tokens"] for _, keywords in timed.asked] == [1] * 6 + [5] * 5


def test_nothing_may_end_a_generation_early(timed: type[TimedModel], gguf_file: GgufFile, invoke: Invoke) -> None:
    invoke("bench", str(gguf_file()))
    assert all(keywords["logit_bias"] == {2: -math.inf, 3: -math.inf} for _, keywords in timed.asked)


def test_a_vocabulary_is_not_needed(
    timed: type[TimedModel], gguf_file: GgufFile, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timed, "has_vocabulary", False)
    assert invoke("bench", str(gguf_file())).exit_code == 0


def test_depth_and_batch_add_their_figures(timed: type[TimedModel], gguf_file: GgufFile, invoke: Invoke) -> None:
    arguments = ("bench", str(gguf_file()), "--depth", "20", "--batch", "4", "--generate", "8")
    report = json.loads(invoke(*arguments, "--json").stdout)
    assert report.keys() == KEYS | {"depth", "batch", "batch_tps"}
    assert (report["depth"], report["batch"]) == (20, 4)
    # Four times eight tokens in 80 ms; the calls themselves take some time too.
    assert 200 < report["batch_tps"] <= 400.0
    assert timed.opened["n_ctx"] >= max(513, 4 * (20 + 8 + 1))
    text = invoke(*arguments).stdout
    assert "decode, 4 at once after 20" in text


def test_the_table_shows_how_near_the_limit_decoding_is(
    timed: type[TimedModel], gguf_file: GgufFile, invoke: Invoke
) -> None:
    text = invoke("bench", str(gguf_file()), "--threads", "1").stdout
    for part in ("1 thread, slow", "prefill, 512 tokens", "1000.0 tokens/s", "of 10.0 GB/s (0%)", "peak memory"):
        assert part in text


@pytest.mark.parametrize("option", ["--prompt", "--generate", "--repeat", "--batch"])
def test_counts_below_one_are_refused(gguf_file: GgufFile, invoke: Invoke, option: str) -> None:
    result = invoke("bench", str(gguf_file()), option, "0")
    assert result.exit_code == 1
    assert f"error: {option[2:]} must be at least 1" in result.stderr


def test_an_untied_embedding_costs_a_row_and_experts_their_share(gguf_file: GgufFile) -> None:
    f32 = by_name("F32")
    extra = {
        "output.weight": (f32, (64, 50), bytes(64 * 50 * 4)),
        "blk.0.ffn_up_exps.weight": (f32, (64, 8, 4), bytes(64 * 8 * 4 * 4)),
    }
    with open_model(gguf_file()) as file:
        tied = benchmark.weight_bytes_per_token(file)
        embedding = file.tensors["token_embd.weight"].nbytes
    with open_model(gguf_file({"llama.expert_count": 4, "llama.expert_used_count": 1}, extra)) as file:
        assert benchmark.weight_bytes_per_token(file) == tied - embedding + embedding // 50 + 64 * 50 * 4 + 64 * 8 * 4


def test_read_bandwidth_is_measured_with_and_without_native_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "_BUFFER", 8 << 20)
    for measure in (benchmark.read_bandwidth, lambda threads: benchmark._read_bandwidth_numpy(8 << 20, threads, 3)):
        assert 0.05 < measure(2) < 5000


def test_peak_memory_follows_what_is_touched() -> None:
    before = benchmark.peak_memory()
    assert before is not None
    size = before + (32 << 20)
    np.ones(size, np.uint8)
    after = benchmark.peak_memory()
    assert after is not None
    assert after >= size


def test_a_real_model_without_vocabulary_is_measured(
    gguf_file: GgufFile, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "_BUFFER", 8 << 20)
    arguments = ("--prompt", "20", "--generate", "6", "--depth", "10", "--batch", "3", "--repeat", "2", "--json")
    result = invoke("bench", str(gguf_file()), *arguments, "--backend", "reference", "--threads", "1")
    assert (result.exit_code, result.stderr) == (0, "")
    report = json.loads(result.stdout)
    assert report["threads"] == 1
    assert all(report[key] > 0 for key in KEYS - {"isa"} | {"batch_tps"})
