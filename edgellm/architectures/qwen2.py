"""Qwen 2 and 2.5: Llama with the other rotation and biases on q, k and v."""

from edgellm.architectures.blocks import Style, embed, head, layer, layers
from edgellm.architectures.moe import Experts, feed
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, Value


@register("qwen2", "qwen2vl")
def qwen2(p: Params, b: ProgramBuilder) -> Value:
    """Qwen 2, 2.5 and the text model of Qwen 2 VL.

    The builder takes the biases from the file.  For text the three axes of VL's rotation turn alike; ggml does not
    read the epsilon of its norms.
    """
    vision = p.architecture == "qwen2vl"
    rope, style = rope_spec(p, "neox"), Style(eps=0.0 if vision else None, head_bias=not vision)
    x = embed(p, b)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=rope, style=style)
    return head(p, b, x, style=style)


@register("qwen2moe", experts=True)
def qwen2moe(p: Params, b: ProgramBuilder) -> Value:
    """Qwen 1.5 and 2 MoE: experts, and one with a gate that takes part in every row."""
    rope, style, experts = rope_spec(p, "neox"), Style(), Experts(normalised=False)
    x = embed(p, b)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=rope, style=style, feed=feed(p, b, i, style, experts))
    return head(p, b, x)
