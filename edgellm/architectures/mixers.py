"""What stands in the place of attention in recurrent layers, shared by the families."""

from __future__ import annotations

import math
from dataclasses import dataclass

from edgellm.architectures.params import Params
from edgellm.errors import ModelFormatError
from edgellm.program import KVState, ProgramBuilder, RopeSpec, Value
from edgellm.program.ops import ScaleUse


@dataclass(frozen=True, slots=True)
class Ssm:
    """The ``ssm.*`` sizes of a model."""

    inner: int
    taps: int
    d_state: int
    rank: int
    """Width of the time step's projection, in Mamba 2 the number of heads."""
    n_group: int

    @classmethod
    def of(cls, p: Params, *, n_group: int | None = None) -> Ssm:
        """Read them; `n_group` stands for a key that a family does not have."""
        groups = p.integer("ssm.group_count") if n_group is None else n_group
        taps = p.integer("ssm.conv_kernel", minimum=2)
        found = cls(
            p.integer("ssm.inner_size"), taps, p.integer("ssm.state_size"), p.integer("ssm.time_step_rank"), groups
        )
        widest = max((max(shape, default=0) for shape in p.tensors.values()), default=0)
        for name, value in (("inner_size", found.inner), ("state_size", found.d_state), ("time_step_rank", found.rank)):
            if value > widest:
                raise ModelFormatError(f"{p.key('ssm.' + name)} = {value}: wider than every tensor of the file")
        return found

    def head_dim(self, p: Params) -> int:
        """Return the width of one of the `rank` heads."""
        for name, count in (("time_step_rank", self.rank), ("group_count", self.n_group)):
            if self.inner % count or self.rank % self.n_group:
                raise ModelFormatError(
                    f"{p.key('ssm.' + name)} = {count}: does not divide {self.inner} values in {self.rank} heads"
                )
        return self.inner // self.rank


def is_recurrent(p: Params, i: int) -> bool:
    """Return whether layer `i` has no heads of keys to attend to."""
    return p.n_head_kv[i] == 0


def delta_layers(p: Params, period: int = 4) -> tuple[bool, ...]:
    """Return which layers are recurrent: as the file says, else all but every `period`-th."""
    if p.key("attention.recurrent_layers") in p.metadata:
        return p.per_layer_flags("attention.recurrent_layers")
    every = p.integer("full_attention_interval", period)
    return tuple((i + 1) % every != 0 for i in range(p.n_layer))


def join(
    p: Params, b: ProgramBuilder, x: Value, h: Value, i: int, name: str, scale_use: ScaleUse = "product"
) -> tuple[Value, Value]:
    """Return the residual stream and layer `i`'s output matrix times `h`; in the last layer only of the wanted rows."""
    if i == p.depth - 1:
        h, x = b.select_rows(h), b.select_rows(x)
    return x, b.matmul(h, f"blk.{i}.{name}", p.n_embd, scale_use=scale_use)


def mamba1(p: Params, b: ProgramBuilder, x: Value, i: int, ssm: Ssm) -> Value:
    """Return layer `i`'s Mamba 1, before the output matrix.  Each channel is a head of its own."""
    blk = f"blk.{i}.ssm"
    xz = b.matmul(x, f"{blk}_in", 2 * ssm.inner)
    h = b.conv1d(b.slice(xz, 0, ssm.inner), f"{blk}_conv1d", ssm.taps, silu=True)
    fused = b.matmul(h, f"{blk}_x", ssm.rank + 2 * ssm.d_state)
    parts = (("dt", 0, ssm.rank), ("b", ssm.rank, ssm.d_state), ("c", ssm.rank + ssm.d_state, ssm.d_state))
    dt, bs, cs = (_part(p, b, fused, i, *part) for part in parts)
    y = b.ssm_scan(h, b.matmul(dt, f"{blk}_dt", ssm.inner), bs, cs, blk, ssm.d_state, 1)
    return b.glu(b.slice(xz, ssm.inner, ssm.inner), y, "silu")


def _part(p: Params, b: ProgramBuilder, fused: Value, i: int, name: str, start: int, width: int) -> Value:
    """Return dt, b or c, normalised if the model does so (Jamba with weights, Falcon Mamba without)."""
    part = b.slice(fused, start, width)
    weight = f"blk.{i}.ssm_{name}_norm.weight"
    if b.has(weight):
        return b.rms_norm(part, weight, p.eps)
    return b.rms_norm(part, None, p.eps) if p.flag("ssm.dt_b_c_rms", False) else part


def mamba2(p: Params, b: ProgramBuilder, x: Value, i: int, ssm: Ssm, eps: float | None = None) -> Value:
    """Return layer `i`'s Mamba 2, before the output matrix.  `eps` is that of its norm if it is not the model's."""
    blk = f"blk.{i}.ssm"
    ssm.head_dim(p)
    shared = ssm.n_group * ssm.d_state
    conv = ssm.inner + 2 * shared
    fused = b.matmul(x, f"{blk}_in", ssm.inner + conv + ssm.rank)
    z, dt = b.slice(fused, 0, ssm.inner), b.slice(fused, ssm.inner + conv, ssm.rank)
    h = b.conv1d(b.slice(fused, ssm.inner, conv), f"{blk}_conv1d", ssm.taps, silu=True)
    bs, cs = b.slice(h, ssm.inner, shared), b.slice(h, ssm.inner + shared, shared)
    y = b.ssm_scan(b.slice(h, 0, ssm.inner), dt, bs, cs, blk, ssm.d_state, ssm.n_group, bias=f"{blk}_dt.bias")
    y = b.glu(z, y, "silu")
    if not b.has(f"{blk}_norm.weight"):
        return y
    return b.rms_norm(y, f"{blk}_norm.weight", p.eps if eps is None else eps, ssm.inner // ssm.n_group)


def short_conv(p: Params, b: ProgramBuilder, x: Value, i: int, taps: int) -> Value:
    """Return layer `i`'s gated short convolution (LFM 2), before the output matrix."""
    blk = f"blk.{i}.shortconv"
    fused = b.matmul(x, f"{blk}.in_proj", 3 * p.n_embd)
    first, second, third = (b.slice(fused, k * p.n_embd, p.n_embd) for k in range(3))
    return b.mul(second, b.conv1d(b.mul(first, third), f"{blk}.conv", taps))


def delta_net(p: Params, b: ProgramBuilder, x: Value, i: int, ssm: Ssm, scale_use: ScaleUse) -> Value:
    """Return layer `i`'s gated delta rule (Qwen 3.5 and Next), before the output matrix."""
    blk, head_dim_v, keys = f"blk.{i}.ssm", ssm.head_dim(p), ssm.n_group * ssm.d_state
    fused, z = _delta_inputs(b, x, i, ssm, scale_use)
    grouped = b.has(f"{blk}_ba.weight")
    if grouped:  # of each key head, the value heads' betas and then their decays
        n = ssm.rank // ssm.n_group
        both = b.matmul(x, f"{blk}_ba", 2 * ssm.rank)
        beta, g = b.slice(both, 0, n, 2 * n), b.slice(both, n, n, 2 * n)
    else:
        beta, g = b.matmul(x, f"{blk}_beta", ssm.rank), b.matmul(x, f"{blk}_alpha", ssm.rank)
    h = b.conv1d(fused, f"{blk}_conv1d", ssm.taps, silu=True)
    q, k = (b.l2_norm(b.slice(h, at, keys), p.eps, ssm.d_state) for at in (0, keys))
    y = b.gated_delta(q, k, b.slice(h, 2 * keys, ssm.inner), g, beta, blk, ssm.d_state, grouped=grouped)
    return b.glu(z, b.rms_norm(y, f"{blk}_norm.weight", p.eps, head_dim_v), "silu")


def _delta_inputs(b: ProgramBuilder, x: Value, i: int, ssm: Ssm, scale_use: ScaleUse) -> tuple[Value, Value]:
    """Return queries, keys and values beside each other, and the gate."""
    blk, keys = f"blk.{i}", ssm.n_group * ssm.d_state
    if scale_use == "unused":
        b.ignore("blk.*.attn_qkv.scale", "blk.*.attn_gate.scale", "blk.*.ssm_in.scale", "blk.*.ssm_out.scale")
    if b.has(f"{blk}.attn_qkv.weight"):
        b.ignore("blk.*.ssm_in.weight")
        qkv = b.matmul(x, f"{blk}.attn_qkv", 2 * keys + ssm.inner, scale_use=scale_use)
        return qkv, b.matmul(x, f"{blk}.attn_gate", ssm.inner, scale_use=scale_use)
    # Older files have all four of each key head side by side.
    fused = b.matmul(x, f"{blk}.ssm_in", 2 * keys + 2 * ssm.inner, scale_use=scale_use)
    n, m = ssm.d_state, ssm.inner // ssm.n_group
    run = 2 * n + 2 * m
    q, k, v, z = (b.slice(fused, at, size, run) for at, size in ((0, n), (n, n), (2 * n, m), (2 * n + m, m)))
    return b.concat(b.concat(q, k), v), z


def gated_attention(p: Params, b: ProgramBuilder, x: Value, i: int, rope: RopeSpec) -> Value:
    """Return layer `i`'s attention with a gate beside each query head, before the output matrix."""
    n_head, n_head_kv, width = p.n_head[i], p.n_head_kv[i], p.head_dim
    fused = b.matmul(x, f"blk.{i}.attn_q", 2 * n_head * width)
    k, v = b.matmul(x, f"blk.{i}.attn_k", n_head_kv * width), b.matmul(x, f"blk.{i}.attn_v", n_head_kv * p.head_dim_v)
    q, gate = b.slice(fused, 0, width, 2 * width), b.slice(fused, width, width, 2 * width)
    q = b.rope(b.rms_norm(q, f"blk.{i}.attn_q_norm.weight", p.eps, width), width, rope)
    k = b.rope(b.rms_norm(k, f"blk.{i}.attn_k_norm.weight", p.eps, width), width, rope)
    state = KVState(f"blk.{i}.kv", n_head_kv, width, p.head_dim_v, None, rope)
    return b.glu(gate, b.attention(q, k, v, state, n_head, p.attention_scale()), "sigmoid")


def lightning(p: Params, b: ProgramBuilder, x: Value, i: int) -> Value:
    """Return layer `i`'s linear attention with a decay for each head (MiniMax 01), before the output matrix.

    It is a scan whose steps are all 1 long.  Later layers decay more slowly.
    Qin et al., "Lightning Attention-2", 2024.
    """
    blk, n_head, width = f"blk.{i}", p.n_head[i], p.head_dim
    qkv = b.activate(b.matmul(x, f"{blk}.attn_qkv", 3 * n_head * width, scale_use="unused"), "silu")
    q, k, v = (b.slice(qkv, part * width, width, 3 * width) for part in range(3))
    slow = 1.0 - i / max(1, p.n_layer - 1) + 1e-5
    b.constant(f"{blk}.lightning_a", (-slow * 2.0 ** (-8.0 * (h + 1) / n_head) for h in range(n_head)))
    b.constant(f"{blk}.lightning_d", (0.0 for _ in range(n_head)))
    step = b.embed_constant("lightning_step", (math.log(math.e - 1.0) for _ in range(n_head)))
    y = b.ssm_scan(v, step, k, q, f"{blk}.lightning", width, n_head)
    y = b.rms_norm(y, f"{blk}.attn_norm_2.weight", p.eps)
    return b.glu(b.matmul(x, f"{blk}.attn_gate", y.width, scale_use="unused"), y, "sigmoid")
