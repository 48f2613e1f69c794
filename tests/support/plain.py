"""A llama in one function: dense matrices, complex numbers, no pages, nothing shared with the package."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def plain_llama(
    w: Mapping[str, npt.NDArray[np.float32]],
    tokens: npt.NDArray[np.int32],
    positions: npt.NDArray[np.int64],
    *,
    n_layer: int,
    n_head: int,
    frequency: Array,
    copies: Array,
    eps: float,
) -> Array:
    """Return the logits of tokens at positions.

    `w` holds arrays by tensor name, slowest axis first; `frequency` is the turn of each pair per position;
    ``copies[row, key]`` says how many times a row sees the token of another.
    """

    def linear(x: Array, stem: str, *, scale_last: bool = False) -> Array:
        y = x @ w[f"{stem}.weight"].astype(np.float64).T
        bias, scale = w.get(f"{stem}.bias", np.zeros(1)), w.get(f"{stem}.scale", np.ones(1))
        return np.asarray((y + bias) * scale if scale_last else y * scale + bias, np.float64)

    def norm(x: Array, name: str) -> Array:
        return np.asarray(x * (np.mean(x**2, axis=1, keepdims=True) + eps) ** -0.5 * w[name], np.float64)

    def turn(x: Array) -> Array:
        pairs = x.reshape(len(x), -1, 2).view(np.complex128).reshape(len(x), n_head, -1)
        return (pairs * np.exp(1j * positions[:, None, None] * frequency)).view(np.float64).reshape(len(x), n_head, -1)

    n = len(tokens)
    x = w["token_embd.weight"][tokens].astype(np.float64)
    for i in range(n_layer):
        h = norm(x, f"blk.{i}.attn_norm.weight")
        q, k = turn(linear(h, f"blk.{i}.attn_q")), turn(linear(h, f"blk.{i}.attn_k"))
        v = linear(h, f"blk.{i}.attn_v").reshape(n, n_head, -1)
        scores = np.einsum("rhd,shd->hrs", q, k) / np.sqrt(q.shape[-1])
        weight = copies * np.exp(scores - scores.max(axis=-1, keepdims=True))
        weight /= weight.sum(axis=-1, keepdims=True)
        x = x + linear(np.einsum("hrs,shd->rhd", weight, v).reshape(n, -1), f"blk.{i}.attn_output")
        h = norm(x, f"blk.{i}.ffn_norm.weight")
        gate = linear(h, f"blk.{i}.ffn_gate", scale_last=True)
        up = linear(h, f"blk.{i}.ffn_up", scale_last=True)
        x = x + linear(gate / (1.0 + np.exp(-gate)) * up, f"blk.{i}.ffn_down", scale_last=True)
    return linear(norm(x, "output_norm.weight"), "output")
