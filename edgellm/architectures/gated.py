"""Dense families with gated attention and a window in some layers: Muse Glimmer and Spark 2.5."""

from edgellm.architectures.blocks import Style, embed, head, layer, layers
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import global_base, local_rope_spec, rope_spec
from edgellm.program import ProgramBuilder, Value


@register("muse-glimmer")
def muse_glimmer(p: Params, b: ProgramBuilder) -> Value:
    """Muse Glimmer: gated attention; layers without a window know no positions."""
    rope = local_rope_spec(p, "norm", global_base(p))
    windows = p.windows(period=4)
    style = Style(head_norms=True, gate="sigmoid", post_norms=True, post_eps=1e-8, out_bias=False)
    x = b.rms_norm(embed(p, b), None, p.eps)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=rope if windows[i] else None, window=windows[i], style=style)
    return head(p, b, x, p.number("final_logit_softcapping", 30.0) or None, scale=p.number("logit_scale"))


@register("spark2_5")
def spark2_5(p: Params, b: ProgramBuilder) -> Value:
    """Spark 2.5: attention gated head by head, GELU gates."""
    everywhere = rope_spec(p, "neox")
    near = local_rope_spec(p, "neox", global_base(p), n_rot=p.local_rot, scaled=True)
    windows = p.windows(period=0)
    style = Style(gate="sigmoid", activation="gelu", out_bias=False)
    x = embed(p, b)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=near if windows[i] else everywhere, window=windows[i], style=style)
    return head(p, b, x)
