"""GLM 4: norms on both sides, and its mixtures."""

from edgellm.architectures.blocks import Style, embed, head, layer, layers
from edgellm.architectures.moe import experts_of, feed
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, Value


@register("glm4")
def glm4(p: Params, b: ProgramBuilder) -> Value:
    """Files for images and text rotate by halves, those for text alone by neighbours."""
    rope = rope_spec(p, "neox" if _axes(p) else "norm")
    style = Style(fused=True, post_norms=True, out_bias=False)
    x = embed(p, b)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=rope, style=style)
    return head(p, b, x)


@register("glm4moe", experts=True)
def glm4moe(p: Params, b: ProgramBuilder) -> Value:
    """GLM 4.5 and later: experts chosen by biased sigmoids; the smaller ones have no head norms."""
    rope = rope_spec(p, "neox")
    style = Style(head_norms=b.has("blk.0.attn_q_norm.weight"), ffn_norm="post_attention_norm", out_bias=False)
    experts = experts_of(p, "sigmoid")
    x = embed(p, b)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=rope, style=style, feed=feed(p, b, i, style, experts))
    return head(p, b, x)


def _axes(p: Params) -> bool:
    """Return whether the rotation has an axis each for time, height and width."""
    sections = p.metadata.get(p.key("rope.dimension_sections"), ())
    return len(sections) > 1 and sections[0] > 0 and sections[1] > 0
