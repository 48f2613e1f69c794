"""Qwen 2 and 2.5: Llama with the other rotation and biases on q, k and v."""

from edgellm.architectures.blocks import embed, head, layer
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, Value


@register("qwen2")
def qwen2(p: Params, b: ProgramBuilder) -> Value:
    """The builder takes the biases from the file."""
    rope = rope_spec(p, "neox")
    x = embed(p, b)
    for i in range(p.n_layer):
        x = layer(p, b, x, i, rope=rope)
    return head(p, b, x)
