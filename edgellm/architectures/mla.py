"""Multi-head latent attention: keys and values made of one narrow vector per token.

DeepSeek-AI, "DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts Language Model", 2024.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from edgellm.architectures.params import Params
from edgellm.architectures.rope import rope_spec
from edgellm.errors import ModelFormatError, UnsupportedModelError
from edgellm.program import KVState, ProgramBuilder, RopeSpec, Value
from edgellm.program.ops import ScaleUse


@dataclass(frozen=True, slots=True)
class Latent:
    """The widths of one model's latent attention."""

    rank: int
    """Of the vector that keys and values are made of."""
    key: int
    """Of a head's query and key: a part that knows no positions, then one that turns."""
    value: int
    """Of a head's value."""
    n_rot: int
    """Of the part that turns, whose keys all heads share."""

    @classmethod
    def of(cls, p: Params, where: str = "") -> Latent:
        """Read them.  Files whose attention is over the vectors themselves have keys of their own for the heads.

        `where` ends the names of the keys for some of the layers.
        """
        found = cls(
            p.integer(f"attention.kv_lora_rank{where}"),
            p.integer(f"attention.key_length_mla{where}", 0, minimum=0) or p.head_dim,
            p.integer(f"attention.value_length_mla{where}", 0, minimum=0) or p.head_dim_v,
            p.integer("rope.dimension_count", p.head_dim, minimum=0),
        )
        if found.n_rot > found.key:
            raise ModelFormatError(f"{p.key('rope.dimension_count')} = {found.n_rot}: of heads of {found.key}")
        return found

    @property
    def still(self) -> int:
        """Width of the part that knows no positions."""
        return self.key - self.n_rot


def latent_attention(
    p: Params,
    b: ProgramBuilder,
    x: Value,
    i: int,
    widths: Latent,
    rope: RopeSpec | None,
    scale: float,
    sharpen: tuple[float, int, int] | None = None,
    q_scale: ScaleUse = "product",
    window: int | None = None,
) -> Value:
    """Return layer `i`'s attention, before the output matrix.

    `rope` turns the values of a head from its `offset` on: those after the still part, or, where the file has the
    matrices ``attn_k_b`` and ``attn_v_b``, after the latent vector that stands for it.
    """
    n_head, blk = p.n_head[i], f"blk.{i}.attn"
    q = _queries(p, b, x, i, n_head * widths.key, q_scale)
    both = (0, widths.rank + widths.n_rot)
    latent = b.matmul(x, f"{blk}_kv_a_mqa", widths.rank, rows=both)
    turning = None
    if widths.n_rot:
        turning = b.matmul(x, f"{blk}_kv_a_mqa", widths.n_rot, rows=(widths.rank, both[1]))
        if b.has(f"{blk}_k_norm.weight"):
            turning = b.rms_norm(turning, f"{blk}_k_norm.weight", p.eps)
    latent = b.rms_norm(latent, f"{blk}_kv_a_norm.weight", p.eps)
    if absorbed(b, i):
        still = q if turning is None else b.slice(q, 0, widths.still, widths.key)
        still = b.matmul_experts(still, None, f"{blk}_k_b", widths.rank, n_head, n_head)
        q, k, v, n_head_kv = _joined(b, q, still, turning, n_head, widths), latent, latent, 1
        k = k if turning is None else b.concat(latent, turning)
    else:
        pair = widths.still + widths.value
        kv = b.matmul(latent, f"{blk}_kv_b", n_head * pair)
        k, v, n_head_kv = _keys(b, kv, turning, n_head, widths), b.slice(kv, widths.still, widths.value, pair), n_head
    head_dim = q.width // n_head
    if rope is not None:
        q, k = b.rope(q, head_dim, rope), b.rope(k, head_dim, rope)
    if sharpen is not None:
        q = b.position_scale(q, *sharpen)
    state = KVState(f"blk.{i}.kv", n_head_kv, head_dim, v.width // n_head_kv, window, rope)
    sinks = f"blk.{i}.attn_sinks.weight"
    y = b.attention(q, k, v, state, n_head, scale, sinks=sinks if b.has(sinks) else None)
    return b.matmul_experts(y, None, f"{blk}_v_b", widths.value, n_head, n_head) if absorbed(b, i) else y


def refuse_long_contexts(p: Params, block: int = 1) -> None:
    """Raise UnsupportedModelError where an indexer would choose some of the context's blocks of keys."""
    name = "attention.indexer.top_k"
    chosen = p.integer(name)
    if p.n_ctx > chosen * block:
        raise UnsupportedModelError(
            f"{p.key(name)} = {chosen}: only contexts of at most {chosen * block} tokens are supported, not {p.n_ctx}; "
            "give a smaller n_ctx"
        )


def absorbed(b: ProgramBuilder, i: int) -> bool:
    """Return whether layer `i` attends over the latent vectors themselves."""
    return b.has(f"blk.{i}.attn_k_b.weight")


def _queries(p: Params, b: ProgramBuilder, x: Value, i: int, width: int, scale_use: ScaleUse) -> Value:
    blk = f"blk.{i}.attn_q"
    if b.has(f"{blk}.weight"):
        return b.matmul(x, blk, width, scale_use=scale_use)
    narrow = b.matmul(x, f"{blk}_a", p.integer("attention.q_lora_rank"))
    return b.matmul(b.rms_norm(narrow, f"{blk}_a_norm.weight", p.eps), f"{blk}_b", width)


def _joined(b: ProgramBuilder, q: Value, still: Value, turning: Value | None, n_head: int, widths: Latent) -> Value:
    """Return queries for the latent vectors themselves, each followed by the part that turns, if any."""
    if turning is None:
        return still
    return b.concat(still, b.slice(q, widths.still, widths.n_rot, widths.key), n_head)


def _keys(b: ProgramBuilder, kv: Value, turning: Value | None, n_head: int, widths: Latent) -> Value:
    if turning is None:
        return b.slice(kv, 0, widths.still, widths.still + widths.value)
    if widths.still:
        return b.concat(b.slice(kv, 0, widths.still, widths.still + widths.value), turning, n_head, shared=True)
    keys = turning
    for _ in range(n_head - 1):
        keys = b.concat(keys, turning)
    return keys


def latent_rope(p: Params, widths: Latent, offset: int) -> RopeSpec:
    """Return the rotation of DeepSeek's latent attention, from `offset` on.

    Where the file has a multiplier for stretched rotations that is in the scores, and the rotation keeps its magnitude.
    """
    keeps = _stretch(p) > 1.0 and p.number("rope.scaling.yarn_log_multiplier", 0.0) > 0.0
    magnitude = p.number("rope.scaling.attn_factor", 1.0) if keeps else None
    return rope_spec(p, "norm", n_rot=widths.n_rot, offset=offset, magnitude=magnitude)


def latent_scale(p: Params, widths: Latent) -> float:
    """Return the factor of its scores, which grows with the logarithm of the stretch, squared."""
    growth = math.log(_stretch(p)) if _stretch(p) > 1.0 else 0.0
    factor = p.number("rope.scaling.attn_factor", 1.0)
    if p.text("rope.scaling.type", "linear") != "yarn":
        factor *= 1.0 + 0.1 * growth
    factor *= 1.0 + p.number("rope.scaling.yarn_log_multiplier", 0.0) * growth
    return factor * factor / math.sqrt(widths.key)


def _stretch(p: Params) -> float:
    return p.number("rope.scaling.factor", 0.0) or 1.0
