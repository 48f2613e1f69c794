"""Hyper-connections: several residual streams, from which each part of a layer reads a mixture and to which it writes.

Zhu et al., "Hyper-Connections", 2024; DeepSeek-AI, "mHC: Manifold-Constrained Hyper-Connections", 2025.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgellm.architectures.params import Params
from edgellm.program import ProgramBuilder, Value


@dataclass(frozen=True, slots=True)
class Streams:
    """How the streams of one model are read and written."""

    count: int
    eps: float
    """Added to what is read, and to the sums that combinations are divided by."""
    magnitude: float = 2.0
    """Largest factor of what is written."""
    writes_eps: float = 0.0
    """Added to the factors of what is written."""
    rounds: int = 0
    """Of normalising rows and columns of the matrix that combines the streams; 0 where each goes on by itself."""

    @classmethod
    def of(cls, p: Params, *, combined: bool) -> Streams:
        """Read the ``hyper_connection.*`` keys."""
        count, eps = p.integer("hyper_connection.count"), p.number("hyper_connection.epsilon")
        if combined:
            return cls(count, eps, rounds=p.integer("hyper_connection.sinkhorn_iterations"))
        return cls(count, eps, p.number("hyper_connection.magnitude"), eps)


def spread(p: Params, b: ProgramBuilder, x: Value, streams: Streams) -> Value:
    """Return as many copies of `x` as there are streams."""
    copies = x
    for _ in range(streams.count - 1):
        copies = b.concat(copies, x)
    return copies


def through(
    p: Params, b: ProgramBuilder, x: Value, stem: str, streams: Streams, part: Callable[[Value], Value]
) -> Value:
    """Return the streams after a `part` of a layer."""
    n, mixes = streams.count, _mixes(p, b, x, stem, streams)
    read = b.scale(b.activate(_affine(b, mixes, stem, 0, 0, n), "sigmoid"), shift=streams.eps)
    made = part(b.mix(x, read, p.n_embd))
    write = b.activate(_affine(b, mixes, stem, 1, n, n), "sigmoid")
    write = b.scale(write, streams.magnitude, shift=streams.writes_eps)
    if streams.rounds:
        by = b.sinkhorn(_affine(b, mixes, stem, 2, 2 * n, n * n), n, streams.rounds, streams.eps)
        x = b.mix(x, _turned(b, by, n), p.n_embd)
    return b.add(x, b.mix(made, write, p.n_embd))


def gathered(p: Params, b: ProgramBuilder, x: Value, streams: Streams) -> Value:
    """Return the mixture of the streams that the logits are made of."""
    stem = "output_hc"
    mixes = b.matmul(b.rms_norm(x, None, p.eps), f"{stem}_fn", streams.count)
    read = b.scale(b.activate(_affine(b, mixes, stem, 0, 0, streams.count), "sigmoid"), shift=streams.eps)
    return b.mix(x, read, p.n_embd)


def mean(p: Params, b: ProgramBuilder, x: Value, streams: Streams) -> Value:
    """Return the mean of the streams."""
    total = b.slice(x, 0, p.n_embd)
    for i in range(1, streams.count):
        total = b.add(total, b.slice(x, i * p.n_embd, p.n_embd))
    return b.scale(total, 1.0 / streams.count)


def _mixes(p: Params, b: ProgramBuilder, x: Value, stem: str, streams: Streams) -> Value:
    n = streams.count
    return b.matmul(b.rms_norm(x, None, p.eps), f"{stem}_fn", (2 + (n if streams.rounds else 0)) * n)


def _affine(b: ProgramBuilder, mixes: Value, stem: str, number: int, start: int, width: int) -> Value:
    """Multiply one part of the mixtures by the factor of this number, and add its base."""
    factors = b.tensors.get(f"{stem}_scale.weight", (1,))[0]
    factor = b.slice(b.embed_first(f"{stem}_scale.weight", factors, 1), number, 1)
    base = b.slice(b.embed_first(f"{stem}_base.weight", mixes.width, 1), start, width)
    return b.add(b.mul(b.slice(mixes, start, width), factor), base)


def _turned(b: ProgramBuilder, by: Value, n: int) -> Value:
    """Return a matrix of `n` rows with rows and columns exchanged."""
    turned = b.slice(by, 0, 1, n)
    for i in range(1, n):
        turned = b.concat(turned, b.slice(by, i, 1, n))
    return turned
