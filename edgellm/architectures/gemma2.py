"""Gemma 2: capped scores and logits, norms on both sides, every other layer with a window."""

from edgellm.architectures.blocks import Style, embed, head, layer
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, Value

LAYERS_27B = 46
"""The 27B model scales its scores by the width of the model per head, and no key tells."""


@register("gemma2")
def gemma2(p: Params, b: ProgramBuilder) -> Value:
    """The defaults are those of the published models, whose files leave the keys out."""
    rope = rope_spec(p, "neox")
    windows = p.windows(period=2, default=4096)
    style = Style(
        scale=p.attention_scale((p.n_embd / p.n_head[0]) ** -0.5 if p.n_layer == LAYERS_27B else None),
        softcap=p.number("attn_logit_softcapping", 50.0) or None,
        activation="gelu",
        post_norms=True,
    )
    x = b.scale(embed(p, b), p.n_embd**0.5)
    for i in range(p.n_layer):
        x = layer(p, b, x, i, rope=rope, window=windows[i], style=style)
    return head(p, b, x, p.number("final_logit_softcapping", 30.0) or None)
