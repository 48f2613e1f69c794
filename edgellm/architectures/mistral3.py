"""Mistral 3 and Ministral 3: Llama whose queries sharpen beyond the original context."""

from edgellm.architectures.blocks import Style, embed, head, layer
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, Value


@register("mistral3")
def mistral3(p: Params, b: ProgramBuilder) -> Value:
    """The temperature grows by a step with every original context length."""
    rope = rope_spec(p, "norm", factors="rope_freqs.weight")
    growth = p.number("attention.temperature_scale", 0.0)
    period = p.integer("rope.scaling.original_context_length", p.n_ctx_train) if growth else 0
    style = Style(ffn_scale="sum", sharpen=(growth, period) if growth else None)
    x = embed(p, b)
    for i in range(p.n_layer):
        x = layer(p, b, x, i, rope=rope, style=style)
    return head(p, b, x)
