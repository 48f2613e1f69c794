"""Feed-forward networks of xIELU, whose shape each layer has numbers of its own for."""

from __future__ import annotations

import math
from numbers import Real

from edgellm.architectures.blocks import Feed
from edgellm.architectures.params import Params
from edgellm.errors import ModelFormatError
from edgellm.program import ProgramBuilder, Value


def xielu_feed(p: Params, b: ProgramBuilder, i: int) -> Feed:
    """Return layer `i`'s feed-forward network; the file has its alphas before the softplus that keeps them positive."""
    alpha_p, alpha_n, beta, eps = (_number(p, name, i) for name in ("alpha_p", "alpha_n", "beta", "eps"))

    def feed(x: Value) -> Value:
        up = b.matmul(x, f"blk.{i}.ffn_up", p.n_ff[i], scale_use="unused")
        h = b.xielu(up, _softplus(alpha_p), beta + _softplus(alpha_n), beta, eps)
        return b.matmul(h, f"blk.{i}.ffn_down", p.n_embd, scale_use="unused")

    return feed


def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def _number(p: Params, name: str, i: int) -> float:
    """Return one layer's number, from an array or from one that holds for all.  These keys have no prefix."""
    key = f"xielu.{name}"
    value = p.metadata.get(key)
    if value is None:
        raise ModelFormatError(f"the metadata key {key} is missing")
    if not isinstance(value, (Real, str)):
        if len(value) != p.n_layer:
            raise ModelFormatError(f"{key} has {len(value)} values, but the model has {p.n_layer} layers")
        key, value = f"{key}[{i}]", value[i]
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise ModelFormatError(f"{key} = {value!r:.60}: must be a finite number")
    return float(value)
