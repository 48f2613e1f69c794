"""Granite 3 and 4 without recurrent layers: Llama with four multipliers."""

from edgellm.architectures.blocks import Style, embed, head, layer, layers
from edgellm.architectures.moe import Experts, feed
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, Value


@register("granite", "granitemoe", "granite_swa", experts=True)
def granite(p: Params, b: ProgramBuilder) -> Value:
    """Dense and mixtures; with a window, sinks and layers that know no positions in ``granite_swa``."""
    rope = rope_spec(p, "norm", factors="rope_freqs.weight")
    local = p.architecture == "granite_swa"
    windows = p.windows(period=0) if local else (None,) * p.n_layer
    style = Style(sinks=local, residual=p.number("residual_scale", 0.0) or 1.0)
    experts = Experts()
    turns = _turning(p)
    x = b.scale(embed(p, b), p.number("embedding_scale", 0.0) or 1.0)
    for i in layers(p, b):
        turn = rope if turns[i] else None
        x = layer(p, b, x, i, rope=turn, window=windows[i], style=style, feed=feed(p, b, i, style, experts))
    if not any(turns):
        b.ignore("rope_freqs.weight")
    return head(p, b, x, scale=1.0 / p.number("logit_scale"))


def _turning(p: Params) -> tuple[bool, ...]:
    """Return which layers know positions: models without any say so in the key about their rope's finetuning."""
    if p.architecture == "granite":
        return (p.flag("rope.scaling.finetuned", True),) * p.n_layer
    if p.architecture == "granite_swa" and p.is_array("attention.rope_pattern"):
        return p.per_layer_flags("attention.rope_pattern")
    return (True,) * p.n_layer
