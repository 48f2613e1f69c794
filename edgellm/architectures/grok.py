"""Grok 1 and 2: a mixture with norms on both sides and bounded scores."""

from edgellm.architectures.blocks import Feed, Style, embed, ffn, head, layer, layers
from edgellm.architectures.moe import Experts, feed, mixture
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, Value


@register("grok", experts=True)
def grok(p: Params, b: ProgramBuilder) -> Value:
    """Grok 2 has a dense feed-forward beside the experts.  The defaults are Grok 1's."""
    rope = rope_spec(p, "neox")
    second = "layer_output_norm" if b.has("blk.0.layer_output_norm.weight") else "post_ffw_norm"
    style = Style(
        scale=p.number("attention.output_scale", 0.08838834764831845),
        softcap=p.number("attn_logit_softcapping", 30.0) or None,
        activation="gelu",
        post_norms=True,
        attn_post_norm="attn_output_norm",
        ffn_post_norm=second,
    )
    experts = Experts(activation="gelu")
    x = b.scale(embed(p, b), p.number("embedding_scale", 78.38367176906169) or 1.0)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=rope, style=style, feed=_both(p, b, i, style, experts))
    scale = p.number("logit_scale", 0.5773502691896257)
    return head(p, b, x, p.number("final_logit_softcapping", 0.0) or None, scale=scale)


def _both(p: Params, b: ProgramBuilder, i: int, style: Style, experts: Experts) -> Feed:
    if not b.has(f"blk.{i}.ffn_up.weight"):
        return feed(p, b, i, style, experts)
    return lambda x: b.scale(b.add(ffn(p, b, x, i, style), mixture(p, b, x, i, experts)), 0.5**0.5)
