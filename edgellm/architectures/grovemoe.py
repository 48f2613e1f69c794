"""GroveMoE: small experts that groups of experts share, after the others."""

from edgellm.architectures.blocks import Feed, Style, embed, head, layer, layers
from edgellm.architectures.moe import Experts, mixture
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, Value


@register("grovemoe", experts=True)
def grovemoe(p: Params, b: ProgramBuilder) -> Value:
    """Only groups of one expert are supported."""
    p.refuse_other("experts_per_group", 1)
    rope, style = rope_spec(p, "neox"), Style(head_norms=True)
    x = embed(p, b)
    for i in layers(p, b):
        x = layer(p, b, x, i, rope=rope, style=style, feed=_two(p, b, i))
    return head(p, b, x)


def _two(p: Params, b: ProgramBuilder, i: int) -> Feed:
    def two(x: Value) -> Value:
        logits = b.matmul(x, f"blk.{i}.ffn_gate_inp", p.n_expert)
        y = mixture(p, b, x, i, Experts(), logits)
        small = b.tensors.get(f"blk.{i}.ffn_up_chexps.weight", (0, 0))[1]
        z = mixture(p, b, y, i, Experts(), logits, "chexps", small)
        return b.add(y, b.scale(z, p.number("expert_group_scale")))

    return two
