"""OpenELM: every layer has its own number of heads and width."""

from edgellm.architectures.blocks import Style, embed, head, layer, layers
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, Value


@register("openelm")
def openelm(p: Params, b: ProgramBuilder) -> Value:
    """Normalised heads, and one matrix for queries, keys and values."""
    rope, style = rope_spec(p, "neox"), Style(head_norms=True, bare=True, out_bias=False)
    x = embed(p, b)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=rope, style=style)
    return head(p, b, x)
