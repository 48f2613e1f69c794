"""SmolLM 3: Llama in which every fourth layer knows no positions."""

from edgellm.architectures.blocks import embed, head, layer
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, Value


@register("smollm3")
def smollm3(p: Params, b: ProgramBuilder) -> Value:
    """See "RoPE to NoRoPE and Back Again" (Yang et al., 2025) for why."""
    rope = rope_spec(p, "norm")
    x = embed(p, b)
    for i in range(p.n_layer):
        x = layer(p, b, x, i, rope=None if i % 4 == 3 else rope)
    return head(p, b, x)
