"""Real models, and how far their logits are from the float32 reference of the same weights."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from edgellm.architectures import build
from edgellm.backends.base import Backend, Executable, KVType, Weight
from edgellm.gguf import open_model
from edgellm.program import Program
from edgellm.program.verify import verify
from tests.support.run import options_for

VECTORS = Path(os.environ.get("EDGELLM_VECTORS") or Path(__file__).parents[3] / "shared") / "conformance"


@contextmanager
def compiled(
    path: Path, backend: Backend, n_tokens: int, *, kv_type: KVType = "f16", threads: int = 2
) -> Iterator[tuple[Executable, Program]]:
    """Load a model file for one sequence of up to `n_tokens`."""
    with open_model(path) as file:
        program = build(file.metadata, {name: t.shape for name, t in file.tensors.items()})
        verify(program, file.tensors)
        weights = {n: Weight(file.tensors[n].dtype, file.tensors[n].shape, file.data(n)) for n in program.weights}
        executable = backend.compile(program, weights, options_for(program, n_tokens, kv_type, threads))
        del weights
        try:
            yield executable, program
        finally:
            executable.close()


@dataclass(frozen=True)
class Divergence:
    """How far logits are from a reference: mean Kullback-Leibler divergence and share of equal first choices."""

    kl: float
    top1: float


@dataclass(frozen=True, eq=False)
class Target:
    """The reference of one model over a text: its 64 likeliest tokens at each position."""

    tokens: npt.NDArray[np.int32]
    ids: npt.NDArray[np.int64]
    logprobs: npt.NDArray[np.float64]
    peer: Divergence
    """What another implementation's quantized arithmetic reaches on the same weights."""

    @staticmethod
    def load(name: str) -> Target:
        """Load ``real_{name}.npz`` of the shared vectors; without them the test is skipped, in CI it fails."""
        path = VECTORS / f"real_{name}.npz"
        if not path.exists():
            reason = f"no reference logits at {path}: set EDGELLM_VECTORS"
            if os.environ.get("CI"):
                pytest.fail(reason)
            pytest.skip(reason)
        with np.load(path) as data:
            peer = Divergence(float(data["peer"][0]), float(data["peer"][2]))
            return Target(
                data["tokens"].astype(np.int32),
                data["top_ids"].astype(np.int64),
                data["top_logprobs"].astype(np.float64),
                peer,
            )

    def divergence(self, logits: npt.NDArray[np.float32]) -> Divergence:
        """Compare logits ``[len(tokens), n_vocab]``.

        The divergence runs over the listed tokens and, as one more event, all others together; the true one
        is at least as large, and hardly larger where the list holds nearly all of the probability.
        """
        wide = logits.astype(np.float64)
        wide -= wide.max(axis=1, keepdims=True)
        logprobs = wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))
        found = np.take_along_axis(logprobs, self.ids, axis=1)
        p = np.exp(self.logprobs)
        rest = np.maximum(1.0 - p.sum(axis=1), 1e-12)
        found_rest = np.maximum(1.0 - np.exp(found).sum(axis=1), 1e-12)
        kl = (p * (self.logprobs - found)).sum(axis=1) + rest * np.log(rest / found_rest)
        return Divergence(float(kl.mean()), float((logprobs.argmax(axis=1) == self.ids[:, 0]).mean()))
