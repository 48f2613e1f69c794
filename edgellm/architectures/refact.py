"""Refact: Llama without a rotation, whose scores fall with distance."""

from edgellm.architectures.blocks import Feed, Style, embed, head, layer, layers
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.program import ProgramBuilder, Value


@register("refact", experts=True)
def refact(p: Params, b: ProgramBuilder) -> Value:
    """ggml leaves experts out and keeps the activation, as we do."""
    b.ignore("rope_freqs.weight", "blk.*.ffn_*_exps.*", "blk.*.ffn_gate_inp.*")
    style = Style(alibi=8.0, out_bias=False, ffn_bias=False)
    x = embed(p, b)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=None, style=style, feed=_without_experts(b) if p.n_expert else None)
    return head(p, b, x)


def _without_experts(b: ProgramBuilder) -> Feed:
    return lambda x: b.activate(x, "silu")
