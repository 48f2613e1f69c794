"""Kimi Delta Attention: a delta rule whose state decays key by key, shared by the families.

Kimi Team, "Kimi Linear: An Expressive, Efficient Attention Architecture", 2025.
"""

from __future__ import annotations

import math

from edgellm.architectures.params import Params
from edgellm.program import ProgramBuilder, Value


def delta_attention(
    p: Params, b: ProgramBuilder, x: Value, i: int, g: Value, gate: Value, *, decays: bool = False
) -> Value:
    """Return layer `i`'s attention, before the output matrix: steered by `g`, gated by `gate`.

    `decays` says that `g` holds the logarithms of the decays.
    """
    blk, n_head, head_dim = f"blk.{i}.ssm", max(p.n_head), p.integer("kda.head_dim")
    q, k, v = (_convolved(p, b, x, i, name) for name in "qkv")
    q, k = b.l2_norm(q, p.eps, head_dim), b.l2_norm(k, p.eps, head_dim)
    beta = b.matmul(x, f"{blk}_beta", n_head, scale_use="unused")
    y = b.gated_delta(q, k, v, g, beta, blk, head_dim, decays=decays)
    return b.glu(gate, b.rms_norm(y, f"{blk}_norm.weight", p.eps, head_dim), "sigmoid")


def bounded_decays(p: Params, b: ProgramBuilder, g: Value, i: int, sign: float) -> Value:
    """Return the logarithms of layer `i`'s decays, which the file bounds from below.

    `sign` is that of the rates as the family's files have them.
    """
    blk = f"blk.{i}.ssm"
    g = b.add(g, b.embed_first(f"{blk}_dt.bias", g.width, 1))
    least = p.number("kda.gate_lower_bound", minimum=-math.inf)
    return b.scale(b.activate(b.scale(g, sign, weight=f"{blk}_a"), "sigmoid"), least)


def inner(p: Params) -> int:
    """Return the width of all heads together."""
    return max(p.n_head) * p.integer("kda.head_dim")


def _convolved(p: Params, b: ProgramBuilder, x: Value, i: int, name: str) -> Value:
    value = b.matmul(x, f"blk.{i}.attn_{name}", inner(p), scale_use="unused", use_bias=False)
    return b.conv1d(value, f"blk.{i}.ssm_conv1d_{name}", p.integer("ssm.conv_kernel", minimum=2), silu=True)
