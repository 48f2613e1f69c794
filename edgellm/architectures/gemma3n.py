"""Gemma 3n: four streams of which one is computed and the others follow, inputs per layer, sparse gates."""

from edgellm.architectures.altup import NARROW, STREAMS, as_long, corrected, inputs_per_layer, modalities, sparse_ffn
from edgellm.architectures.blocks import embed, head, layers, norm, project
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import local_rope_spec, rope_spec
from edgellm.program import KVState, ProgramBuilder, RopeSpec, Value

FILLED = 20
"""Layers with keys of their own: no key tells."""


@register("gemma3n")
def gemma3n(p: Params, b: ProgramBuilder) -> Value:
    """Gemma Team, "Gemma 3n", 2025."""
    everywhere, near = rope_spec(p, "neox"), local_rope_spec(p, "neox", 10000.0)
    windows = p.windows(period=5)
    n = p.n_embd
    first = b.scale(embed(p, b), n**0.5)
    inputs = inputs_per_layer(p, b, first, NARROW)
    others = b.matmul_experts(first, None, "altup_proj", n, STREAMS - 1, STREAMS - 1, shared=True)
    streams = b.concat(first, as_long(b, others, first))
    for i in layers(p, b):
        own = b.slice(inputs, i * NARROW, NARROW)
        rope = near if windows[i] else everywhere
        streams = _layer(p, b, streams, own, i, rope, windows[i])
    first, others = b.slice(streams, 0, n), b.slice(streams, n, (STREAMS - 1) * n)
    others = b.matmul_experts(others, None, "altup_unembd_proj", n, STREAMS - 1, STREAMS - 1)
    others = as_long(b, others, first)
    for s in range(STREAMS - 1):
        first = b.add(first, b.slice(others, s * n, n))
    x = b.select_rows(b.scale(first, 1.0 / STREAMS))
    return head(p, b, x, p.number("final_logit_softcapping", 30.0) or None)


def _layer(
    p: Params, b: ProgramBuilder, streams: Value, own: Value, i: int, rope: RopeSpec, window: int | None
) -> Value:
    blk, n = f"blk.{i}", p.n_embd
    active = b.slice(streams, 0, n)
    by = b.matmul(modalities(p, b, active, i), f"{blk}.altup_predict_coef", STREAMS * STREAMS)
    predicted = b.add(b.mix(streams, by, n), streams)
    active = b.slice(predicted, 0, n)
    x = norm(p, b, active, f"{blk}.attn_norm")
    low = b.matmul(x, f"{blk}.laurel_l", b.tensors.get(f"{blk}.laurel_l.weight", (0, 64))[1])
    laurel = b.add(norm(p, b, b.matmul(low, f"{blk}.laurel_r", n), f"{blk}.laurel_post_norm"), x)
    h = b.matmul(_attention(p, b, x, i, rope, window), f"{blk}.attn_output", n)
    h = b.add(norm(p, b, h, f"{blk}.post_attention_norm"), active)
    h = b.scale(b.add(h, laurel), 0.5**0.5)
    made = b.add(norm(p, b, sparse_ffn(p, b, norm(p, b, h, f"{blk}.ffn_norm"), i), f"{blk}.post_ffw_norm"), h)
    return corrected(p, b, predicted, active, made, own, i)


def _attention(p: Params, b: ProgramBuilder, x: Value, i: int, rope: RopeSpec, window: int | None) -> Value:
    """Return layer `i`'s attention; the last layers read the keys of the last ones of their kind that have any."""
    blk, width = f"blk.{i}.attn", p.head_dim
    if i >= FILLED:
        b.ignore(f"{blk}_k.*", f"{blk}_v.*", f"{blk}_k_norm.*")
        q = b.matmul(x, f"{blk}_q", p.n_head[i] * width)
        q = b.rope(b.rms_norm(q, f"{blk}_q_norm.weight", p.eps, width), width, rope)
        source = FILLED - (2 if window else 1)
        state = KVState(f"blk.{source}.kv", p.n_head_kv[source], width, p.head_dim_v, window, rope)
        return b.attention(q, None, None, state, p.n_head[i], 1.0)
    q, k, v = project(p, b, x, i)
    q = b.rope(b.rms_norm(q, f"{blk}_q_norm.weight", p.eps, width), width, rope)
    k = b.rope(b.rms_norm(k, f"{blk}_k_norm.weight", p.eps, width), width, rope)
    v = b.rms_norm(v, None, p.eps, p.head_dim_v)
    state = KVState(f"blk.{i}.kv", p.n_head_kv[i], width, p.head_dim_v, window, rope)
    return b.attention(q, k, v, state, p.n_head[i], 1.0)
