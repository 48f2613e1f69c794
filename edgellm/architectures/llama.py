"""Llama 1–3, Mixtral and everything published in their form: Mistral, SmolLM, TinyLlama, Yi…"""

from edgellm.architectures.blocks import Style, attended, attention, embed, ffn, head, layer, layers, norm
from edgellm.architectures.moe import Experts, feed
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, Value


@register("llama", experts=True)
def llama(p: Params, b: ProgramBuilder) -> Value:
    """Llama 3 stretches its rotation pair by pair, by a tensor."""
    b.ignore("blk.*.attn_rot_embd.weight")  # old converters stored the frequencies
    rope = rope_spec(p, "norm", factors="rope_freqs.weight")
    style, experts = Style(ffn_scale="sum"), Experts(use_scale=True)
    x = embed(p, b)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=rope, style=style, feed=feed(p, b, i, style, experts))
    return head(p, b, x)


@register("nanbeige")
def nanbeige(p: Params, b: ProgramBuilder) -> Value:
    """Models that run through their layers several times are not supported."""
    p.refuse_other("num_loops", 1)
    return llama(p, b)


@register("deci")
def deci(p: Params, b: ProgramBuilder) -> Value:
    """Nemotron of NVIDIA's search for architectures: layers may lack attention, its heads or the feed-forward."""
    p.allow_layers_without_heads()
    rope = rope_spec(p, "norm", factors="rope_freqs.weight")
    style = Style()
    x = embed(p, b)
    n_ff = p.per_layer("feed_forward_length", minimum=0)
    for i in layers(p, b):
        if n_ff[i] and p.n_head_kv[i]:
            x = layer(p, b, x, i, rope=rope, style=style)
            continue
        if p.n_head_kv[i]:
            h = attention(p, b, norm(p, b, x, f"blk.{i}.attn_norm"), i, style, rope, None)
            x = b.add(*attended(p, b, x, h, i, style))
        elif p.n_head[i]:
            x = b.add(x, b.matmul(norm(p, b, x, f"blk.{i}.attn_norm"), f"blk.{i}.attn_output", p.n_embd))
        if n_ff[i]:
            x = b.add(x, ffn(p, b, norm(p, b, x, f"blk.{i}.ffn_norm"), i, style))
    return head(p, b, x)
