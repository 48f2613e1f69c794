"""Gemma 4: heads of two widths, layers that share keys and values, inputs per layer, and experts beside the network."""

from edgellm.architectures.altup import inputs_per_layer
from edgellm.architectures.blocks import Style, embed, ffn, head, layers, norm
from edgellm.architectures.moe import Experts, mixture
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import local_rope_spec, rope_spec
from edgellm.program import KVState, ProgramBuilder, RopeSpec, Value

STYLE = Style(activation="gelu", ffn_scale="sum")


@register("gemma4", experts=True)
def gemma4(p: Params, b: ProgramBuilder) -> Value:
    """Scores are not scaled, since queries and keys are normalised."""
    everywhere = rope_spec(p, "neox", factors="rope_freqs.weight")
    near = local_rope_spec(p, "neox", 10000.0, n_rot=p.local_rot)
    windows = p.windows(period=0)
    narrow = p.integer("embedding_length_per_layer_input", minimum=0)
    x = b.scale(embed(p, b), p.n_embd**0.5)
    inputs = inputs_per_layer(p, b, x, narrow) if narrow else None
    for i in layers(p, b):
        h = _attention(p, b, norm(p, b, x, f"blk.{i}.attn_norm"), i, near if windows[i] else everywhere, windows)
        own = b.slice(inputs, i * narrow, narrow) if inputs is not None else None
        if i == p.depth - 1:
            x, h = b.select_rows(x), b.select_rows(h)
            own = own and b.select_rows(own)
        h = b.matmul(h, f"blk.{i}.attn_output", p.n_embd)
        x = b.add(x, norm(p, b, h, f"blk.{i}.post_attention_norm"))
        x = b.add(x, norm(p, b, _feed(p, b, x, i), f"blk.{i}.post_ffw_norm"))
        if own is not None:
            gate = b.matmul(x, f"blk.{i}.inp_gate", narrow)
            h = b.matmul(b.glu(gate, own, "gelu"), f"blk.{i}.proj", p.n_embd)
            x = b.add(x, norm(p, b, h, f"blk.{i}.post_norm"))
        factor = f"blk.{i}.layer_output_scale.weight"
        x = b.scale(x, weight=factor if b.has(factor) else None)
    return head(p, b, x, p.number("final_logit_softcapping", 30.0) or None)


def _attention(
    p: Params, b: ProgramBuilder, x: Value, i: int, rope: RopeSpec, windows: tuple[int | None, ...]
) -> Value:
    """Return layer `i`'s attention; the last layers read the keys of the last ones of their kind that have any."""
    width = p.integer("attention.key_length_swa") if windows[i] else p.head_dim
    n_head, n_head_kv, blk = p.n_head[i], p.n_head_kv[i], f"blk.{i}.attn"
    filled = p.n_layer - p.integer("attention.shared_kv_layers", 0, minimum=0)
    q = b.rope(b.rms_norm(b.matmul(x, f"{blk}_q", n_head * width), f"{blk}_q_norm.weight", p.eps, width), width, rope)
    if i >= filled:
        source = filled - (2 if windows[i] else 1)
        state = KVState(f"blk.{source}.kv", p.n_head_kv[max(0, source)], width, width, windows[i], rope)
        return b.attention(q, None, None, state, n_head, 1.0)
    k = v = b.matmul(x, f"{blk}_k", n_head_kv * width)
    if b.has(f"{blk}_v.weight"):
        v = b.matmul(x, f"{blk}_v", n_head_kv * width)
    k = b.rope(b.rms_norm(k, f"{blk}_k_norm.weight", p.eps, width), width, rope)
    v = b.rms_norm(v, None, p.eps, width)
    return b.attention(q, k, v, KVState(f"blk.{i}.kv", n_head_kv, width, width, windows[i], rope), n_head, 1.0)


def _feed(p: Params, b: ProgramBuilder, x: Value, i: int) -> Value:
    """Return layer `i`'s network, in mixtures with the experts beside it, each normalised before and after."""
    blk = f"blk.{i}"
    y = ffn(p, b, norm(p, b, x, f"{blk}.ffn_norm"), i, STYLE)
    if not b.has(f"{blk}.ffn_gate_inp.weight"):
        return y
    routed = b.scale(b.rms_norm(x, None, p.eps), p.n_embd**-0.5, weight=f"{blk}.ffn_gate_inp.scale")
    logits = b.matmul(routed, f"{blk}.ffn_gate_inp", p.n_expert, scale_use="unused")
    experts = Experts(activation="gelu", use_scale=True)
    z = mixture(p, b, norm(p, b, x, f"{blk}.pre_ffw_norm_2"), i, experts, logits)
    return b.add(norm(p, b, y, f"{blk}.post_ffw_norm_1"), norm(p, b, z, f"{blk}.post_ffw_norm_2"))
