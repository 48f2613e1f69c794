"""PLaMo 2: Mamba with heads and normalised steering, beside attention with a norm for each head."""

from edgellm.architectures.blocks import embed, head, layers, norm
from edgellm.architectures.mixers import Ssm, is_recurrent, join
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import KVState, ProgramBuilder, RopeSpec, Value


@register("plamo2")
def plamo2(p: Params, b: ProgramBuilder) -> Value:
    """Norms surround the mixer and the feed-forward network; layers with 0 key heads are Mamba."""
    p.allow_layers_without_heads()
    b.ignore("blk.*.scale")
    rope, ssm = rope_spec(p, "neox"), Ssm.of(p, n_group=1)
    x = embed(p, b)
    for i in layers(p, b):
        blk, n_ff = f"blk.{i}", p.n_ff[i]
        h = norm(p, b, x, f"{blk}.attn_norm")
        if is_recurrent(p, i):
            x, h = join(p, b, x, _mamba(p, b, h, i, ssm), i, "ssm_out", "unused")
        else:
            x, h = join(p, b, x, _attention(p, b, h, i, rope), i, "attn_output")
        x = b.add(x, norm(p, b, h, f"{blk}.post_attention_norm"))
        h = norm(p, b, x, f"{blk}.ffn_norm")
        gate = b.matmul(h, f"{blk}.ffn_up", n_ff, scale_use="unused", rows=(0, 2 * n_ff))
        up = b.matmul(h, f"{blk}.ffn_up", n_ff, scale_use="unused", rows=(n_ff, 2 * n_ff))
        h = b.matmul(b.glu(gate, up, "silu"), f"{blk}.ffn_down", p.n_embd, scale_use="unused")
        x = b.add(x, norm(p, b, h, f"{blk}.post_ffw_norm"))
    return head(p, b, x)


def _attention(p: Params, b: ProgramBuilder, x: Value, i: int, rope: RopeSpec) -> Value:
    n_head, n_head_kv, stem = p.n_head[i], p.n_head_kv[i], f"blk.{i}.attn_qkv"
    q_width, k_width, v_width = n_head * p.head_dim, n_head_kv * p.head_dim, n_head_kv * p.head_dim_v
    n = q_width + k_width + v_width
    q = b.matmul(x, stem, q_width, scale_use="unused", rows=(0, n))
    k = b.matmul(x, stem, k_width, scale_use="unused", rows=(q_width, n))
    v = b.matmul(x, stem, v_width, scale_use="unused", rows=(q_width + k_width, n))
    q = b.rope(b.rms_norm(q, f"blk.{i}.attn_q_norm.weight", p.eps, p.head_dim), p.head_dim, rope)
    k = b.rope(b.rms_norm(k, f"blk.{i}.attn_k_norm.weight", p.eps, p.head_dim), p.head_dim, rope)
    state = KVState(f"blk.{i}.kv", n_head_kv, p.head_dim, p.head_dim_v, None, rope)
    return b.attention(q, k, v, state, n_head, p.head_dim_v**-0.5)


def _mamba(p: Params, b: ProgramBuilder, x: Value, i: int, ssm: Ssm) -> Value:
    blk, head_dim, n = f"blk.{i}.ssm", ssm.head_dim(p), ssm.d_state
    rank = max(64, p.n_embd // 16)  # of the time step's projection; no key tells
    zx = b.matmul(x, f"{blk}_in", 2 * ssm.inner, scale_use="unused")
    z, h = b.slice(zx, 0, head_dim, 2 * head_dim), b.slice(zx, head_dim, head_dim, 2 * head_dim)
    h = b.conv1d(h, f"{blk}_conv1d", ssm.taps, silu=True)
    fused = b.matmul(h, f"{blk}_x", 2 * n + rank)
    bs, cs = norm(p, b, b.slice(fused, 0, n), f"{blk}_b_norm"), norm(p, b, b.slice(fused, n, n), f"{blk}_c_norm")
    dt = b.matmul(norm(p, b, b.slice(fused, 2 * n, rank), f"{blk}_dt_norm"), f"{blk}_dt", ssm.rank)
    return b.glu(z, b.ssm_scan(h, dt, bs, cs, blk, n, 1), "silu")
