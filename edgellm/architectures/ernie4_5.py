"""ERNIE 4.5 and its mixture."""

from edgellm.architectures.blocks import Style, embed, head, layer, layers
from edgellm.architectures.moe import Experts, feed
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, Value


@register("ernie4_5", "ernie4_5-moe", experts=True)
def ernie4_5(p: Params, b: ProgramBuilder) -> Value:
    """The first layers of the mixture are dense; ``ernie4_5`` is whatever a key says."""
    rope, style = rope_spec(p, "norm"), Style(out_bias=False)
    experts = Experts()
    x = embed(p, b)
    for i in layers(p, b):
        mix = feed(p, b, i, style, experts) if p.architecture == "ernie4_5-moe" else None
        x = layer(p, b, x, i, rope=rope, style=style, feed=mix)
    return head(p, b, x)
