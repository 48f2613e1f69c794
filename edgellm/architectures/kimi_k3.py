"""Kimi K3: Kimi Linear whose layers read a mixture of what earlier blocks of layers left, with narrow experts."""

from edgellm.architectures.blocks import Style, embed, ffn, gated, head, layers, norm
from edgellm.architectures.kda import bounded_decays, delta_attention, inner
from edgellm.architectures.mixers import is_recurrent
from edgellm.architectures.mla import Latent, latent_attention
from edgellm.architectures.moe import Experts, experts_of, mixture, shared
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.program import ProgramBuilder, Value


@register("kimi-k3", experts=True)
def kimi_k3(p: Params, b: ProgramBuilder) -> Value:
    """The stream begins anew with each block, whose beginning is kept for the mixtures."""
    p.allow_layers_without_heads()
    b.ignore("blk.*.scale", "blk.*.attn_*.bias", "blk.0.attn_res_score.weight")
    widths, read = Latent.of(p), experts_of(p, "sigmoid")
    bounds = (p.number("activation.situ_beta"), p.number("activation.situ_linear_beta"))
    width = p.integer("expert_latent_length", 0, minimum=0)
    style = Style(situ=bounds)
    experts = Experts(read.scoring, read.normalised, read.scale, situ=bounds, width=width)
    size = p.integer("attn_res.block_size")
    kept: list[tuple[Value, Value]] = []
    x = embed(p, b)
    for i in layers(p, b):
        blk = f"blk.{i}"
        h = _mixed(p, b, kept, x, f"{blk}.attn_res_score")
        begins = i % size == 0
        if begins:
            kept.append((x, b.rms_norm(x, None, p.eps)))
        h = _attention(p, b, norm(p, b, h, f"{blk}.attn_norm"), i, widths)
        h = b.matmul(h, f"{blk}.attn_output", p.n_embd, scale_use="unused")
        x = h if begins else b.add(x, h)
        h = norm(p, b, _mixed(p, b, kept, x, f"{blk}.ffn_res_score"), f"{blk}.ffn_norm")
        x = b.add(x, _feed(p, b, h, i, style, experts))
    return head(p, b, b.select_rows(_mixed(p, b, kept, x, "output_res_score")))


def _attention(p: Params, b: ProgramBuilder, x: Value, i: int, widths: Latent) -> Value:
    blk = f"blk.{i}.ssm"
    if is_recurrent(p, i):
        g = b.matmul(b.matmul(x, f"{blk}_f_a", p.integer("kda.head_dim")), f"{blk}_f_b", inner(p))
        gate = b.matmul(x, f"{blk}_g", inner(p))
        return delta_attention(p, b, x, i, bounded_decays(p, b, g, i, -1.0), gate, decays=True)
    y = latent_attention(p, b, x, i, widths, None, widths.key**-0.5, q_scale="unused")
    return gated(b, x, y, i, p.n_head[i], "sigmoid") if b.has(f"blk.{i}.attn_gate.weight") else y


def _mixed(p: Params, b: ProgramBuilder, kept: list[tuple[Value, Value]], x: Value, stem: str) -> Value:
    """Return the mean of what was kept and the stream, weighed by a softmax of the scores of each."""
    if not kept:
        return x
    streams, scores = kept[0][0], b.matmul(kept[0][1], stem, 1)
    for stream, normed in (*kept[1:], (x, b.rms_norm(x, None, p.eps))):
        streams, scores = b.concat(streams, stream), b.concat(scores, b.matmul(normed, stem, 1))
    return b.mix(streams, b.softmax(scores), p.n_embd)


def _feed(p: Params, b: ProgramBuilder, x: Value, i: int, style: Style, experts: Experts) -> Value:
    blk = f"blk.{i}.ffn"
    if not b.has(f"{blk}_gate_inp.weight"):
        return ffn(p, b, x, i, style)
    logits = b.matmul(x, f"{blk}_gate_inp", p.n_expert)
    y = mixture(p, b, b.matmul(x, f"{blk}_routed_down", experts.width) if experts.width else x, i, experts, logits)
    if b.has(f"{blk}_routed_norm.weight"):
        y = norm(p, b, y, f"{blk}_routed_norm")
    return shared(p, b, x, i, style, b.matmul(y, f"{blk}_routed_up", p.n_embd) if experts.width else y)
