"""DeepSeek 1 and other mixtures with dense layers first and an expert that takes part in every row."""

from edgellm.architectures.blocks import Style, embed, head, layer, layers
from edgellm.architectures.moe import Experts, experts_of, feed
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, RopeSpec, Value


@register("deepseek", experts=True)
def deepseek(p: Params, b: ProgramBuilder) -> Value:
    """DeepSeek MoE of 2024."""
    return _mixture(p, b, rope_spec(p, "norm", factors="rope_freqs.weight"), Style(), experts_of(p, normalised=False))


@register("dots1", experts=True)
def dots1(p: Params, b: ProgramBuilder) -> Value:
    """dots.llm1: normalised heads."""
    return _mixture(p, b, rope_spec(p, "neox"), Style(head_norms=True), experts_of(p))


@register("bailingmoe", experts=True)
def bailingmoe(p: Params, b: ProgramBuilder) -> Value:
    """Ling 1: scores scaled by the width that turns."""
    rope = rope_spec(p, "norm", factors="rope_freqs.weight")
    return _mixture(p, b, rope, Style(scale=rope.n_rot**-0.5), experts_of(p))


@register("bailingmoe2", experts=True)
def bailingmoe2(p: Params, b: ProgramBuilder) -> Value:
    """Ling 2: normalised heads, experts in groups."""
    return _mixture(p, b, rope_spec(p, "neox"), Style(head_norms=True), experts_of(p))


@register("minimax-m2", experts=True)
def minimax_m2(p: Params, b: ProgramBuilder) -> Value:
    """MiniMax M2: all queries normalised together, and all keys."""
    style = Style(row_norms=True, out_bias=False)
    return _mixture(p, b, rope_spec(p, "neox"), style, experts_of(p, normalised=True))


def _mixture(p: Params, b: ProgramBuilder, rope: RopeSpec, style: Style, experts: Experts) -> Value:
    x = embed(p, b)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=rope, style=style, feed=feed(p, b, i, style, experts))
    return head(p, b, x)
