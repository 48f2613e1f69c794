"""Diffusion models: Dream, LLaDA and RND1.  Every token sees every other; none of them is the next one."""

from edgellm.architectures.blocks import Style, embed, head, layer, layers
from edgellm.architectures.moe import Experts, feed
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, Value


@register("dream", causal=False)
def dream(p: Params, b: ProgramBuilder) -> Value:
    """Dream: Qwen 2 that sees both sides."""
    rope, style = rope_spec(p, "neox"), Style(causal=False, head_bias=False)
    x = embed(p, b)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=rope, style=style)
    return head(p, b, x, style=style)


@register("llada", causal=False)
def llada(p: Params, b: ProgramBuilder) -> Value:
    """LLaDA: Llama that sees both sides."""
    b.ignore("rope_freqs.weight")
    rope, style = rope_spec(p, "norm"), Style(causal=False, out_bias=False, ffn_bias=False)
    x = embed(p, b)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=rope, style=style)
    return head(p, b, x)


@register("llada-moe", "rnd1", experts=True, causal=False)
def llada_moe(p: Params, b: ProgramBuilder) -> Value:
    """LLaDA MoE and RND1, whose experts' weights sum to one."""
    rope, style = rope_spec(p, "neox"), Style(causal=False, head_norms=True)
    experts = Experts(normalised=p.architecture == "rnd1")
    x = embed(p, b)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=rope, style=style, feed=feed(p, b, i, style, experts))
    return head(p, b, x)
