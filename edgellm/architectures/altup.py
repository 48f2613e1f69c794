"""Parts of Gemma 3n and 4: alternating updates, inputs per layer, sparse gates.

Baykal et al., "Alternating Updates for Efficient Transformers", 2023.
"""

from __future__ import annotations

from edgellm.architectures.blocks import norm
from edgellm.architectures.params import Params
from edgellm.program import ProgramBuilder, Value

STREAMS, NARROW, SPARSE = 4, 256, 10
"""Streams, width of a layer's own input, and layers with sparse gates: no keys tell."""
ICDF_95 = 1.6448533535003662
"""Deviations above the mean beyond which lie five per cent of a normal distribution."""
TINY = 1e-30


def inputs_per_layer(p: Params, b: ProgramBuilder, x: Value, narrow: int) -> Value:
    """Return the inputs of all layers, one beside the other, of the token's own embedding and a projection."""
    wide = narrow * p.n_layer
    own = b.scale(b.embed("per_layer_token_embd.weight", wide, p.n_vocab), narrow**0.5)
    made = b.scale(b.matmul(x, "per_layer_model_proj", wide), p.n_embd**-0.5)
    made = b.rms_norm(made, "per_layer_proj_norm.weight", p.eps, narrow)
    return b.scale(b.add(made, own), 0.5**0.5)


def corrected(p: Params, b: ProgramBuilder, predicted: Value, active: Value, made: Value, own: Value, i: int) -> Value:
    """Return the streams, moved by what the layer made and, all but the first, by its own input."""
    blk, n = f"blk.{i}", p.n_embd
    news = b.add(made, b.scale(active, -1.0))
    by = b.scale(b.matmul(modalities(p, b, made, i), f"{blk}.altup_correct_coef", STREAMS), shift=1.0)
    streams = b.add(b.mix(news, by, n), predicted)
    first = b.slice(streams, 0, n)
    gate = b.matmul(b.scale(first, weight=f"{blk}.altup_correct_scale.weight"), f"{blk}.inp_gate", NARROW)
    h = norm(p, b, b.matmul(b.glu(gate, own, "gelu"), f"{blk}.proj", n), f"{blk}.post_norm")
    rest = b.add(b.slice(streams, n, (STREAMS - 1) * n), b.concat(b.concat(h, h), h))
    return b.concat(first, rest)


def modalities(p: Params, b: ProgramBuilder, x: Value, i: int) -> Value:
    routed = b.scale(norm(p, b, x, f"blk.{i}.altup_router_norm"), 1.0 / p.n_embd)
    return b.activate(b.matmul(routed, f"blk.{i}.altup_router", STREAMS), "tanh")


def as_long(b: ProgramBuilder, streams: Value, first: Value) -> Value:
    """Give every stream the length of the first."""
    n = first.width
    return b.mul(b.l2_norm(streams, TINY, n), b.dot(first, b.l2_norm(first, TINY, n), n))


def sparse_ffn(p: Params, b: ProgramBuilder, x: Value, i: int) -> Value:
    blk, n = f"blk.{i}.ffn", p.n_ff[i]
    gate, up = b.matmul(x, f"{blk}_gate", n), b.matmul(x, f"{blk}_up", n)
    if i < SPARSE:
        # Only what lies far enough above the mean passes: (x - mean) / deviation, cut off, times the deviation.
        even = b.layer_norm(gate, None, TINY)
        deviation = b.scale(b.dot(gate, even, n), 1.0 / n)
        cut = ICDF_95 * (n / max(1, n - 1)) ** 0.5
        gate = b.mul(b.activate(b.scale(even, shift=-cut), "relu"), deviation)
    return b.matmul(b.glu(gate, up, "gelu"), f"{blk}_down", p.n_embd)
