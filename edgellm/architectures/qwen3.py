"""Qwen 3: normalised query and key heads."""

from edgellm.architectures.blocks import Style, embed, head, layer
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, Value


@register("qwen3")
def qwen3(p: Params, b: ProgramBuilder) -> Value:
    """Rerankers bring a classifier head, which plays no part in the logits."""
    b.ignore("cls.*")
    rope = rope_spec(p, "neox")
    style = Style(head_norms=True, ffn_scale="sum")
    x = embed(p, b)
    for i in range(p.n_layer):
        x = layer(p, b, x, i, rope=rope, style=style)
    return head(p, b, x)
