"""Qwen 3: normalised query and key heads."""

from edgellm.architectures.blocks import Style, embed, head, layer, layers
from edgellm.architectures.moe import Experts, feed
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, Value


@register("qwen3", "qwen3vl", "qwen3tts")
def qwen3(p: Params, b: ProgramBuilder) -> Value:
    """Rerankers bring a classifier head, which plays no part in the logits.  For text VL's axes turn alike."""
    b.ignore("cls.*")
    rope = rope_spec(p, "neox")
    style = Style(head_norms=True, ffn_scale="sum" if p.architecture == "qwen3" else "unused")
    x = embed(p, b)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=rope, style=style)
    return head(p, b, x)


@register("qwen3moe", "qwen3vlmoe", experts=True)
def qwen3moe(p: Params, b: ProgramBuilder) -> Value:
    """Qwen 3 with experts."""
    rope, style = rope_spec(p, "neox"), Style(head_norms=True)
    experts = Experts(use_scale=p.architecture == "qwen3moe")
    x = embed(p, b)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=rope, style=style, feed=feed(p, b, i, style, experts))
    return head(p, b, x)
