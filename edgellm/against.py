"""The same measurements on llama.cpp, through the Python package ``llama_cpp`` where it is installed."""

from __future__ import annotations

import ctypes
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np

from edgellm.benchmark import Runs, check_counts
from edgellm.errors import BackendError
from edgellm.model import Model


@dataclass(frozen=True, slots=True)
class Ratio:
    """Medians of interleaved runs, in tokens per second."""

    name: str
    edgellm: float
    llama_cpp: float

    @property
    def ratio(self) -> float:
        """How many times as fast EdgeLLM is."""
        return self.edgellm / self.llama_cpp


def compare(
    path: str | PathLike[str],
    *,
    prompt: int = 512,
    generate: int = 64,
    threads: int | None = None,
    repeat: int = 3,
    depth: int = 0,
    batch: int | None = None,
    kv_type: Literal["f16", "q8_0", "f32"] = "f16",
    seed: int = 1,
) -> list[Ratio]:
    """Measure EdgeLLM and llama.cpp in turns on one file: prefill of `prompt` tokens, and decoding after `depth`.

    `batch` sequences are decoded at once, too, where it is given.  `kv_type` is EdgeLLM's; llama.cpp keeps f16.
    Both see random ids.  Raises BackendError without the package ``llama_cpp`` (the extra ``bench``), or
    where it cannot load the file.
    """
    check_counts(prompt=prompt, generate=generate, repeat=repeat, batch=batch)
    context, many = max(depth, 1), batch or 1
    n_ctx = max(prompt + 1, (context + generate + 17) * many)
    rng = random.Random(seed)
    with (
        Model(path, n_ctx=n_ctx, threads=threads, kv_type=kv_type) as model,
        Peer(path, n_ctx, model.info.threads, many) as peer,
    ):
        ours = Runs(model, random.Random(seed))
        n_vocab = model.info.n_vocab
        rows: list[tuple[str, Callable[[], float], Callable[[], float]]] = [
            (
                f"prefill, {prompt} tokens",
                lambda: ours.prefill(prompt).timings.prefill_tps,
                lambda: peer.prefill(rng.choices(range(n_vocab), k=prompt)),
            ),
            (
                f"decode, {generate} tokens" + (f" after {depth}" if depth else ""),
                lambda: ours.decode(context, generate),
                lambda: peer.decode(rng.choices(range(n_vocab), k=context), generate),
            ),
        ]
        if batch:
            rows.append(
                (
                    f"decode, {batch} at once" + (f" after {depth}" if depth else ""),
                    lambda: ours.decode_together(batch, context, generate),
                    lambda: peer.decode_together(
                        [rng.choices(range(n_vocab), k=context) for _ in range(batch)], generate
                    ),
                )
            )
        ours.prefill(min(prompt, 16))  # The first step alone pays for reading the file and starting the threads.
        peer.prefill(rng.choices(range(n_vocab), k=min(prompt, 16)))
        results = []
        for name, mine, theirs in rows:
            pairs = [(mine(), theirs()) for _ in range(repeat)]
            results.append(Ratio(name, *(statistics.median(column) for column in zip(*pairs, strict=True))))
        return results


class Peer:
    """One llama.cpp context, greedy, called through its C interface so that Python costs as little as possible."""

    def __init__(self, path: str | PathLike[str], n_ctx: int, threads: int, n_sequences: int = 1) -> None:
        try:
            import llama_cpp
        except ImportError:
            raise BackendError(
                'the package llama_cpp is not installed; install it with: pip install "edgellm[bench]"'
            ) from None
        self._lib: Any = llama_cpp
        self._quiet = llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(self._quiet, None)
        llama_cpp.llama_backend_init()
        self._model = llama_cpp.llama_model_load_from_file(
            fspath(path).encode(), llama_cpp.llama_model_default_params()
        )
        if not self._model:
            raise BackendError(f"{fspath(path)}: llama.cpp cannot load this file")
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx = n_ctx
        parameters.n_batch = parameters.n_ubatch = 512
        parameters.n_seq_max = n_sequences
        parameters.kv_unified = True
        parameters.n_threads = parameters.n_threads_batch = threads
        self._context = llama_cpp.llama_init_from_model(self._model, parameters)
        if not self._context:
            raise BackendError(f"{fspath(path)}: llama.cpp cannot make a context of {n_ctx} tokens")
        self._n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))

    def prefill(self, tokens: Sequence[int]) -> float:
        """Return the tokens per second of one prompt."""
        self._forget()
        start = time.perf_counter()
        self._read(tokens)
        self._likeliest()
        return len(tokens) / (time.perf_counter() - start)

    def decode(self, context: Sequence[int], n: int) -> float:
        """Return the tokens per second of `n` greedy steps after `context`."""
        self._forget()
        self._read(context)
        token = self._likeliest()
        start = time.perf_counter()
        for _ in range(n):
            self._read([token])
            token = self._likeliest()
        return n / (time.perf_counter() - start)

    def decode_together(self, contexts: Sequence[Sequence[int]], n: int) -> float:
        """Return the tokens per second of `n` greedy steps of all `contexts` at once."""
        self._forget()
        batch = self._lib.llama_batch_init(512, 0, 1)
        try:
            tokens = []
            for sequence, context in enumerate(contexts):
                for at in range(0, len(context), 512):
                    part = context[at : at + 512]
                    self._run(batch, [(token, at + i, sequence) for i, token in enumerate(part)])
                tokens.append(self._likeliest())
            start = time.perf_counter()
            for step in range(n):
                self._run(batch, [(t, len(contexts[s]) + step, s) for s, t in enumerate(tokens)])
                tokens = [self._likeliest(s) for s in range(len(tokens))]
            return len(tokens) * n / (time.perf_counter() - start)
        finally:
            self._lib.llama_batch_free(batch)

    def _run(self, batch: Any, rows: Sequence[tuple[int, int, int]]) -> None:
        """Compute rows of token, position and sequence, and the logits after each."""
        batch.n_tokens = len(rows)
        for i, (token, position, sequence) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position, 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = True
        self._decode(batch)

    def _forget(self) -> None:
        self._lib.llama_memory_clear(self._lib.llama_get_memory(self._context), True)

    def _read(self, tokens: Sequence[int]) -> None:
        for at in range(0, len(tokens), 512):
            part = tokens[at : at + 512]
            ids = (self._lib.llama_token * len(part))(*part)
            self._decode(self._lib.llama_batch_get_one(ids, len(part)))

    def _decode(self, batch: Any) -> None:
        status = self._lib.llama_decode(self._context, batch)
        if status:
            raise BackendError(f"llama.cpp failed with status {status}")

    def _likeliest(self, row: int = -1) -> int:
        logits = self._lib.llama_get_logits_ith(self._context, row)
        address = ctypes.cast(logits, ctypes.POINTER(ctypes.c_float))
        return int(np.ctypeslib.as_array(address, (self._n_vocab,)).argmax())

    def close(self) -> None:
        """Free the context and the model."""
        self._lib.llama_free(self._context)
        self._lib.llama_model_free(self._model)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
