"""The two small real models: equal bits however they are run, and closer to float32 than the peer is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from edgellm.backends.base import Backend, Batch, KVType, Segment
from tests.support.native import available, feed
from tests.support.real import Target, compiled
from tests.support.run import run_tokens

MODELS = {"smollm2-135m-instruct": "smollm2-135m-instruct-q4_1", "gemma-3-270m": "gemma-3-270m-q4_k_m"}
"""Name in the catalog → name of its reference logits."""
FEW = 24

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Real:
    """A model file and its reference."""

    path: Path
    target: Target

    @cache  # noqa: B019 (there are two of these, and they live as long as the session)
    def logits(self, backend: Backend, kv_type: KVType = "f16", threads: int = 2, chunk: int | None = None) -> Floats:
        """Return the logits of the whole text."""
        with compiled(self.path, backend, len(self.target.tokens), kv_type=kv_type, threads=threads) as (run, program):
            return run_tokens(run, program, self.target.tokens, chunk)

    def few(self, isa: str, kv_type: KVType = "f16") -> Floats:
        """Return the logits of the beginning of the text on one instruction set."""
        from edgellm.backends.native import NativeBackend

        with compiled(self.path, NativeBackend(isa), FEW, kv_type=kv_type) as (run, program):
            return run_tokens(run, program, self.target.tokens[:FEW])


@pytest.fixture(scope="module", params=sorted(MODELS))
def real(request: pytest.FixtureRequest, model_path: Callable[[str], Path]) -> Real:
    """Each model."""
    return Real(model_path(request.param), Target.load(MODELS[request.param]))


def test_it_is_at_least_as_close_to_float32_as_the_peer(real: Real, best: Backend) -> None:
    found, peer = real.target.divergence(real.logits(best)), real.target.peer
    assert 0.0 < found.kl <= peer.kl
    assert found.top1 >= peer.top1


def test_the_measure_tells_good_from_bad(real: Real, best: Backend) -> None:
    logits = real.logits(best)
    good = real.target.divergence(logits)
    noise = np.random.default_rng(0).standard_normal(logits.shape).astype(np.float32)
    bad = real.target.divergence(logits + 0.5 * noise)
    assert bad.kl > 3.0 * good.kl
    assert bad.top1 < good.top1


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_chunks_do_not_matter(real: Real, best: Backend, chunk: int) -> None:
    np.testing.assert_array_equal(real.logits(best, chunk=chunk), real.logits(best))


@pytest.mark.parametrize("threads", [1, 3, 8])
def test_threads_do_not_matter(real: Real, best: Backend, threads: int) -> None:
    np.testing.assert_array_equal(real.logits(best, threads=threads), real.logits(best))


@pytest.mark.parametrize("kv_type", ["f16", "f32"])
def test_the_instruction_set_does_not_matter(real: Real, best: Backend, kv_type: KVType) -> None:
    expected = real.logits(best, kv_type)[:FEW]
    for isa in available():
        np.testing.assert_array_equal(real.few(isa, kv_type), expected)


def test_neighbours_and_page_numbers_do_not_matter(real: Real, best: Backend) -> None:
    tokens = real.target.tokens
    parts = [tokens[:50], tokens[:1], tokens[:33]]
    with compiled(real.path, best, len(tokens)) as (run, program):
        for chunk in (None, 16):
            pages = [[9, 0, 5, 2], [7], [1, 8, 3]]
            for found, part in zip(feed(run, program, parts, chunk=chunk, pages=pages), parts, strict=True):
                np.testing.assert_array_equal(found, real.logits(best)[: len(part)])


def test_only_wanted_rows_cost_nothing_in_exactness(real: Real, best: Backend) -> None:
    tokens = real.target.tokens
    wanted = np.array([0, 3, len(tokens) - 1], np.int32)
    with compiled(real.path, best, len(tokens)) as (run, program):
        pages = np.arange(-(-len(tokens) // 16), dtype=np.int32)
        segment = Segment(0, len(tokens), [pages] * len(program.windows))
        np.testing.assert_array_equal(run.step(Batch(tokens, [segment], wanted)), real.logits(best)[wanted])
