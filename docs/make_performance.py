"""Prints the tables of docs/performance.md: EdgeLLM and llama.cpp in turns, on this machine.

    python docs/make_performance.py SMOLLM2 GEMMA MODEL...

SMOLLM2 and GEMMA are files of SmolLM2-135M-Instruct and Gemma 3 270M; every MODEL adds a row to the first table.
It takes about a minute for each billion parameters, with `pip install ".[bench]"` and nothing else running.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from edgellm import Model
from edgellm.against import Ratio, compare
from edgellm.benchmark import Runs, read_bandwidth, weight_bytes_per_token
from edgellm.diagnostics import diagnose
from edgellm.gguf import open_model

THREADS = 2


def main(smollm2: str, gemma: str, *models: str) -> None:
    """Print everything."""
    print(f"Machine: {diagnose()['cpu']['name']}, {THREADS} threads.\n")
    print("| file | prefill 512 | llama.cpp | ratio | decode | llama.cpp | ratio | weights read, GB/s | memory, GB/s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for path in (smollm2, gemma, *models):
        prefill, decode = compare(path, generate=32, threads=THREADS)
        memory = read_bandwidth(THREADS)
        with open_model(path) as file:
            read = weight_bytes_per_token(file) * decode.edgellm / 1e9
        print(f"| {Path(path).stem} | {_cells(prefill)} | {_cells(decode)} | {read:.1f} | {memory:.1f} |", flush=True)
    print("\nSmolLM2-135M-Instruct:\n")
    print("| what | EdgeLLM | llama.cpp | ratio |\n|---|---|---|---|")
    for kv_type in ("f16", "q8_0"):
        _, deep = compare(smollm2, prompt=16, generate=32, threads=THREADS, depth=4096, kv_type=kv_type)
        print(f"| decode after 4096 tokens, {kv_type} keys and values | {_cells(deep)} |", flush=True)
    many = compare(smollm2, prompt=16, generate=32, threads=THREADS, batch=16)[-1]
    print(f"| decode, 16 sequences at once | {_cells(many)} |", flush=True)
    print("\n| what | tokens/s | of the rate at 512 |\n|---|---|---|")
    for kv_type in ("f16", "q8_0"):
        short, long = (_prefill(smollm2, n, kv_type) for n in (512, 4096))
        print(f"| prefill 4096, {kv_type} | {long:.0f} | {long / short:.0%} |", flush=True)
    best, avx2 = (_prefill_on(isa, smollm2) for isa in ("", "avx2"))
    print(f"| prefill 512, AVX2 | {avx2:.0f} | {avx2 / best:.0%} |", flush=True)
    print(f"\nPython per generated token: {_python_time(smollm2) * 1e6:.0f} µs.")


def _cells(ratio: Ratio) -> str:
    return f"{ratio.edgellm:.1f} | {ratio.llama_cpp:.1f} | {ratio.ratio:.2f}"


def _prefill(path: str, n: int, kv_type: str) -> float:
    import random

    with Model(path, n_ctx=4100, threads=THREADS, kv_type=kv_type) as model:  # type: ignore[arg-type]
        runs = Runs(model, random.Random(1))
        runs.prefill(16)
        return statistics.median(runs.prefill(n).timings.prefill_tps for _ in range(3))


def _prefill_on(isa: str, path: str) -> float:
    environment = {**os.environ, **({"EDGELLM_ISA": isa} if isa else {})}
    command = [sys.executable, "-m", "edgellm", "bench", path, "--threads", str(THREADS), "--generate", "1", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout)["prefill_tps"])


def _python_time(path: str, n: int = 200) -> float:
    """Return the seconds per token that are not spent in the native step."""
    with Model(path, threads=THREADS, n_ctx=512) as model:
        core: Any = model._engine._executable
        step, spent = core.step, [0.0]

        def timed(batch: object) -> object:
            start = time.perf_counter()
            try:
                return step(batch)
            finally:
                spent[0] += time.perf_counter() - start

        core.step = timed
        no_end = dict.fromkeys(model.tokenizer.eog_ids, False)
        list(model.generate([1, 2, 3], max_tokens=8, logit_bias=no_end))
        spent[0] = 0.0
        generation = model.generate([1, 2, 3], max_tokens=n, logit_bias=no_end)
        start = time.perf_counter()
        for _ in generation:
            pass
        return (time.perf_counter() - start - spent[0]) / n


if __name__ == "__main__":
    main(*sys.argv[1:])
