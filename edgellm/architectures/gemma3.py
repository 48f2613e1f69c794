"""Gemma 3: five layers with a window and their own rotation to one that sees everything."""

from edgellm.architectures.blocks import Style, embed, head, layer
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import local_rope_spec, rope_spec
from edgellm.program import ProgramBuilder, Value

LAYERS_27B = 62
"""The 27B model scales its scores by the width of the model per head, and no key tells."""


@register("gemma3")
def gemma3(p: Params, b: ProgramBuilder) -> Value:
    """Without a window in the file every layer sees everything."""
    everywhere, near = rope_spec(p, "neox"), local_rope_spec(p, "neox", 10000.0)
    windows = p.windows(period=6)
    style = Style(
        head_norms=True,
        scale=p.attention_scale((p.n_embd / p.n_head[0]) ** -0.5 if p.n_layer == LAYERS_27B else None),
        activation="gelu",
        post_norms=True,
    )
    x = b.scale(embed(p, b), p.n_embd**0.5)
    for i in range(p.n_layer):
        x = layer(p, b, x, i, rope=near if windows[i] else everywhere, window=windows[i], style=style)
    return head(p, b, x, p.number("final_logit_softcapping", 0.0) or None)
