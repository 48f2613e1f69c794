"""Phi 2, 3 and 3.5 MoE."""

from edgellm.architectures.blocks import Style, embed, head, layer, layers, parallel_layer
from edgellm.architectures.moe import Experts, feed
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import long_or_short, rope_spec
from edgellm.program import ProgramBuilder, Value


@register("phi2")
def phi2(p: Params, b: ProgramBuilder) -> Value:
    """Attention and feed-forward read the same norm."""
    rope = rope_spec(p, "neox")
    style = Style(layer_norm=True, gated=False, activation="gelu")
    x = embed(p, b)
    for i in layers(p, b):
        x = parallel_layer(p, b, x, i, rope=rope, style=style)
    return head(p, b, x, style=style)


@register("phi3")
def phi3(p: Params, b: ProgramBuilder) -> Value:
    """Fused matrices; in long contexts the rotation stretches pair by pair.  ggml leaves its window out, as we do."""
    rope = rope_spec(p, "neox", factors=long_or_short(p, b))
    style = Style(fused=True)
    x = embed(p, b)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=rope, style=style)
    return head(p, b, x)


@register("phimoe", experts=True)
def phimoe(p: Params, b: ProgramBuilder) -> Value:
    """Norms by root mean square that have biases all the same."""
    rope = rope_spec(p, "neox", factors=long_or_short(p, b))
    style, experts = Style(rms_bias=True), Experts()
    x = embed(p, b)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=rope, style=style, feed=feed(p, b, i, style, experts))
    return head(p, b, x, style=style)
