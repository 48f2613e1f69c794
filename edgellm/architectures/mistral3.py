"""Mistral 3 and Ministral 3: Llama whose queries sharpen beyond the original context."""

from edgellm.architectures.blocks import Style, embed, head, layer, layers
from edgellm.architectures.moe import Experts, feed
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, Value


@register("mistral3", experts=True)
def mistral3(p: Params, b: ProgramBuilder) -> Value:
    """The temperature grows by a step with every original context length."""
    rope = rope_spec(p, "norm", factors="rope_freqs.weight")
    growth = p.number("attention.temperature_scale", 0.0)
    period = p.integer("rope.scaling.original_context_length", p.n_ctx_train) if growth else 0
    style = Style(ffn_scale="sum", sharpen=(growth, period, 0) if growth else None)
    experts = Experts(use_scale=True)
    x = embed(p, b)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=rope, style=style, feed=feed(p, b, i, style, experts))
    return head(p, b, x)
