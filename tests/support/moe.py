"""A small mixture of experts with everything attention can have: sinks, slopes, chunks and shared keys."""

from __future__ import annotations

from functools import cache

import numpy as np

from edgellm.backends.base import Weight
from edgellm.program import KVState, Program, ProgramBuilder, RopeSpec
from edgellm.program.program import Value
from tests.support.native import N_VOCAB, vector, weight

N_EMBD, N_FF, N_EXPERT, N_USED, WIDTH = 256, 256, 6, 3, 64


@cache
def mixture(kind: str) -> tuple[Program, dict[str, Weight]]:
    """Return a program of two layers, its matrices of type `kind`, and its weights."""
    shapes = {"sinks": (4,), "down.bias": (N_EMBD, N_EXPERT), "up.scale": (N_EXPERT,), "norm.bias": (N_EMBD,)}
    b = ProgramBuilder("mixture", shapes)
    spec = RopeSpec(tuple(1000.0 ** (-i / 8) for i in range(8)), "neox", None, 1.0, 4)
    x = b.embed("embed", N_EMBD, N_VOCAB)
    near = KVState("near", 2, WIDTH, WIDTH, 24, spec, chunked=True)
    far = KVState("far", 2, WIDTH, WIDTH)
    for i, state in enumerate((near, far, near)):
        h = b.layer_norm(x, "norm", 1e-5)
        q = b.matmul(h, "qkv", 4 * WIDTH, rows=(0, 8 * WIDTH))
        k = v = None
        if i < 2:
            k = b.matmul(h, "qkv", 2 * WIDTH, rows=(4 * WIDTH, 8 * WIDTH))
            v = b.matmul(h, "qkv", 2 * WIDTH, rows=(6 * WIDTH, 8 * WIDTH))
        if state.rope is not None:
            q, k = b.rope(q, WIDTH, spec), k and b.rope(k, WIDTH, spec)
        a = b.attention(q, k, v, state, 4, 0.2, sinks="sinks" if i == 0 else None, alibi=8.0 if i == 1 else 0.0)
        x = b.add(x, b.matmul(a, "out", N_EMBD))
    x = b.select_rows(x)
    x = b.add(x, _experts(b, b.rms_norm(x, None, 1e-5)))
    heads = b.matmul_experts(b.concat(x, x), None, "heads", 128, 2, 2)
    logits = b.matmul(b.rms_norm(heads, None, 1e-5), "head", N_VOCAB)
    program = b.build(logits, n_embd=N_EMBD, n_ctx_train=4096)
    rng = np.random.default_rng(3)
    weights: dict[str, Weight] = {}
    for number, (name, shape) in enumerate(program.weights.items()):
        if len(shape) == 1 or name.endswith(".bias"):
            weights[name] = vector(rng.standard_normal(shape[::-1]) + (0.0 if "bias" in name else 1.0))
        else:
            flat = weight(kind, shape[0], int(np.prod(shape[1:])), number)
            weights[name] = Weight(flat.dtype, shape, flat.data)
    return program, weights


def _experts(b: ProgramBuilder, x: Value) -> Value:
    routes = b.route(b.matmul(x, "router", N_EXPERT), N_USED, "sigmoid", normalised=True, scale=1.5)
    gate = b.matmul_experts(x, routes, "up", N_FF, N_USED, N_EXPERT, shared=True, rows=(0, 2 * N_FF))
    up = b.matmul_experts(x, routes, "up", N_FF, N_USED, N_EXPERT, shared=True, rows=(N_FF, 2 * N_FF))
    h = b.glu(gate, up, "gelu_quick", 7.0, 1.0)
    y = b.matmul_experts(h, routes, "down", N_EMBD, N_USED, N_EXPERT)
    return b.mix(y, b.slice(routes, N_USED, N_USED), N_EMBD)
