"""Talkie: norms without weights, and the embedding added after every layer."""

from edgellm.architectures.blocks import Style, embed, head, layer, layers
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, Value


@register("talkie")
def talkie(p: Params, b: ProgramBuilder) -> Value:
    """Query heads have a factor each; so has the embedding in every layer."""
    rope = rope_spec(p, "neox")
    style = Style(unit_norms=True, norm_weights=False, down_scale="product", out_bias=False)
    start = x = b.rms_norm(embed(p, b), None, p.eps)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=rope, style=style)
        skip = b.select_rows(start) if i == p.depth - 1 else start
        x = b.add(x, b.scale(skip, weight=f"blk.{i}.layer_output_scale.weight"))
    return head(p, b, x, norm=None, scale=p.number("logit_scale"))
