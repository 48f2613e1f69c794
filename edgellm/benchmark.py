"""How fast a model runs here, and how near decoding comes to what the memory allows."""

from __future__ import annotations

import math
import random
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib import import_module
from os import PathLike
from typing import Literal

import numpy as np

from edgellm.engine.generation import Generation
from edgellm.errors import ArgumentError, VocabularyError
from edgellm.gguf import ModelFile, open_model
from edgellm.model import Model

_BUFFER = 256 << 20
"""Bytes read to measure the memory: more than the caches of nearly all machines."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What was measured: medians over the repeats, tps in tokens per second, GB and MB in powers of 1000."""

    prefill_tps: float
    decode_tps: float
    """One sequence, one token per step, after `depth` tokens."""
    load_s: float
    first_token_s: float
    """From asking with the prompt of the prefill to its first token."""
    peak_rss_mb: float | None
    """The most memory this process ever held, the pages of the mapped file included; None where nobody can tell."""
    read_gbps: float
    """How fast `threads` threads read memory here."""
    decode_gbps: float
    """Weights read per second while decoding."""
    threads: int
    isa: str | None
    """The instruction set of the kernels, where the backend has a choice."""
    depth: int | None = None
    batch: int | None = None
    batch_tps: float | None = None
    """Tokens per second of `batch` sequences together."""

    def as_dict(self) -> dict[str, float | int | str | None]:
        """Return the fields; those of depth and batch only where they were asked for."""
        optional = {"depth", "batch", "batch_tps"}
        return {k: v for k, v in asdict(self).items() if v is not None or k not in optional}


def run_benchmark(
    path: str | PathLike[str],
    *,
    prompt: int = 512,
    generate: int = 64,
    threads: int | None = None,
    repeat: int = 3,
    depth: int | None = None,
    batch: int | None = None,
    backend: Literal["auto", "native", "numba", "reference"] = "auto",
    kv_type: Literal["f16", "q8_0", "f32"] = "f16",
    seed: int = 1,
) -> Benchmark:
    """Measure the model file `path`.

    `prompt` tokens are processed for the prefill, `generate` tokens decoded after `depth` others, and again in
    `batch` sequences at once where that is given.  Prompts are random token ids, new ones for every repeat, so that
    nothing is remembered from one to the next and a vocabulary is not needed.
    Raises ArgumentError for counts below 1, and what `Model` raises.
    """
    check_counts(prompt=prompt, generate=generate, repeat=repeat, batch=batch)
    if depth is not None and depth < 0:
        raise ArgumentError(f"depth must be at least 0, not {depth}")
    context = max(depth or 0, 1)
    # Pages hold 16 tokens: every sequence may leave part of its last one empty.
    n_ctx = max(prompt + 1, (context + generate + 17) * (batch or 1))
    with open_model(path) as file:
        step_bytes = weight_bytes_per_token(file)
    start = time.perf_counter()
    with Model(path, n_ctx=n_ctx, threads=threads, backend=backend, kv_type=kv_type) as model:
        load_s = time.perf_counter() - start
        runs = Runs(model, random.Random(seed))
        runs.prefill(min(prompt, 16))  # The first step alone pays for reading the file and starting the threads.
        prefills = [runs.prefill(prompt).timings for _ in range(repeat)]
        decode_tps = statistics.median(runs.decode(context, generate) for _ in range(repeat))
        together = [runs.decode_together(batch, context, generate) for _ in range(repeat)] if batch else []
        peak = peak_memory()  # Before the buffer of the memory measurement joins it.
        read_gbps = read_bandwidth(model.info.threads)
        return Benchmark(
            prefill_tps=statistics.median(t.prefill_tps for t in prefills),
            decode_tps=decode_tps,
            load_s=load_s,
            first_token_s=statistics.median(t.first_token_s for t in prefills),
            peak_rss_mb=None if peak is None else peak / 1e6,
            read_gbps=read_gbps,
            decode_gbps=step_bytes * decode_tps / 1e9,
            threads=model.info.threads,
            isa=model.info.isa,
            depth=depth,
            batch=batch,
            batch_tps=statistics.median(together) if together else None,
        )


def check_counts(**counts: int | None) -> None:
    """Raise ArgumentError for the first count below 1; None is what was not asked for."""
    for name, value in counts.items():
        if value is not None and value < 1:
            raise ArgumentError(f"{name} must be at least 1, not {value}")


class Runs:
    """Generations of an exact length from random prompts."""

    def __init__(self, model: Model, rng: random.Random) -> None:
        self._model = model
        self._rng = rng
        try:
            ends = model.tokenizer.eog_ids
        except VocabularyError:
            ends = frozenset()
        self._no_end = dict.fromkeys(ends, -math.inf)

    def prefill(self, n_prompt: int) -> Generation:
        return self._finish(self._start(self._prompt(n_prompt), 1))

    def decode(self, context: int, n: int) -> float:
        """Return the tokens per second of `n` steps with one row, after a prompt of `context` tokens."""
        return self._finish(self._start(self._prompt(context), n + 1)).timings.decode_tps

    def decode_together(self, batch: int, context: int, n: int) -> float:
        """Return the tokens per second of `n` steps with `batch` rows."""
        prompts = [self._prompt(context) for _ in range(batch)]
        for prompt in prompts:  # Once each, so that all of them can then start from the cache in the same step.
            self._finish(self._start(prompt, 1))
        begun = []
        for prompt in prompts:
            asked = time.perf_counter()
            begun.append((asked, self._start(prompt, n + 1)))
        first, last = math.inf, 0.0
        for asked, generation in begun:
            timings = self._finish(generation).timings
            first = min(first, asked + timings.first_token_s)
            last = max(last, asked + timings.first_token_s + timings.decode_s)
        return batch * n / (last - first)

    def _prompt(self, n: int) -> list[int]:
        return self._rng.choices(range(self._model.info.n_vocab), k=n)

    def _start(self, prompt: Sequence[int], n: int) -> Generation:
        return self._model.generate(prompt, max_tokens=n, temperature=0.0, logit_bias=self._no_end)

    def _finish(self, generation: Generation) -> Generation:
        for _ in generation:
            pass
        return generation


def weight_bytes_per_token(file: ModelFile) -> int:
    """Return how many bytes of weights one decoding step reads.

    A step reads one row of the token embedding, unless that is the output matrix as well, and the experts it uses.
    """
    metadata = file.metadata
    architecture = metadata.get_str("general.architecture")
    experts = metadata.get_int(f"{architecture}.expert_count", 0)
    used = metadata.get_int(f"{architecture}.expert_used_count", 0)
    tied = "output.weight" not in file.tensors
    total = 0
    for name, tensor in file.tensors.items():
        if name == "token_embd.weight" and not tied:
            total += tensor.nbytes // math.prod(tensor.shape[1:])
        elif "_exps." in name and experts > 0:
            total += tensor.nbytes * used // experts
        else:
            total += tensor.nbytes
    return total


def read_bandwidth(threads: int, repeats: int = 5) -> float:
    """Return the GB per second at which `threads` threads together read a buffer larger than the caches."""
    try:
        native = import_module("edgellm._native")
    except ImportError:
        return _read_bandwidth_numpy(_BUFFER, threads, repeats)
    return float(native.read_bandwidth(_BUFFER, threads, repeats))


def _read_bandwidth_numpy(n_bytes: int, threads: int, repeats: int) -> float:
    parts = np.array_split(np.ones(n_bytes // 8, np.int64), threads)
    best = math.inf
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(repeats):
            start = time.perf_counter()
            list(pool.map(np.bitwise_or.reduce, parts))
            best = min(best, time.perf_counter() - start)
    return n_bytes / best / 1e9


def peak_memory() -> int | None:
    """Return the most bytes of physical memory this process has held so far, or None where nobody can tell."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
