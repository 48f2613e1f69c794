"""Command R and its successors: attention and feed-forward read the same norm."""

from edgellm.architectures.blocks import Feed, Style, embed, head, layers, parallel_layer
from edgellm.architectures.moe import experts_of, feed
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, Value


@register("command-r")
def command_r(p: Params, b: ProgramBuilder) -> Value:
    """Command R and R+, the latter with normalised heads."""
    rope = rope_spec(p, "norm")
    style = Style(layer_norm=True, head_norms=b.has("blk.0.attn_q_norm.weight"), ffn_bias=False)
    x = embed(p, b)
    for i in layers(p, b):
        x = parallel_layer(p, b, x, i, rope=rope, style=style)
    return head(p, b, x, style=style, scale=p.number("logit_scale", 0.0) or 1.0)


@register("cohere2")
def cohere2(p: Params, b: ProgramBuilder) -> Value:
    """Command R7B and A: layers with a window know positions, the others do not."""
    rope = rope_spec(p, "norm", factors="rope_freqs.weight")
    windows = p.windows(period=4)
    style = Style(layer_norm=True, ffn_scale="product", ffn_bias=False)
    x = embed(p, b)
    for i in layers(p, b):
        turn = rope if windows[i] else None
        x = parallel_layer(p, b, x, i, rope=turn, window=windows[i], style=style)
    return head(p, b, x, style=style, scale=p.number("logit_scale") or 1.0)


@register("cohere2moe", experts=True)
def cohere2moe(p: Params, b: ProgramBuilder) -> Value:
    """Dense layers first, which all know positions; an expert in every row counts as much as the chosen ones."""
    rope = rope_spec(p, "norm", factors="rope_freqs.weight")
    windows = p.windows(period=4, first=True)
    dense = p.integer("leading_dense_block_count", minimum=0)
    style = Style(layer_norm=not p.number("attention.layer_norm_rms_epsilon", 0.0), ffn_scale="product", ffn_bias=False)
    experts = experts_of(p, "sigmoid", use_scale=True)
    x = embed(p, b)
    for i in layers(p, b):
        turn = rope if windows[i] or i < dense else None
        mix = _halved(b, i, feed(p, b, i, style, experts))
        x = parallel_layer(p, b, x, i, rope=turn, window=windows[i], style=style, feed=mix)
    return head(p, b, x, style=style, scale=p.number("logit_scale") or 1.0)


def _halved(b: ProgramBuilder, i: int, mix: Feed) -> Feed:
    has_shared = b.has(f"blk.{i}.ffn_up_shexp.weight") and b.has(f"blk.{i}.ffn_gate_inp.weight")
    return lambda x: b.scale(mix(x), 0.5 if has_shared else 1.0)
