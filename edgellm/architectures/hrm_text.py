"""HRM Text: two stacks that run in turn, the lower one several times for each time of the upper one.

Wang et al., "Hierarchical Reasoning Model", 2025.
"""

from edgellm.architectures.blocks import Style, attention, embed, ffn, layers, norm, output, scale_of
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.errors import ModelFormatError
from edgellm.program import ProgramBuilder, RopeSpec, Value


@register("hrm_text")
def hrm_text(p: Params, b: ProgramBuilder) -> Value:
    """Every run of a stack has keys and values of its own, which is what ``block_count`` counts."""
    p.refuse_other("hrm.prefix_lm", False)
    size, upper, lower = p.integer("hrm.layers_per_stack"), p.integer("hrm.h_cycles"), p.integer("hrm.l_cycles")
    if size * upper * (lower + 1) != len(layers(p, b)):
        raise ModelFormatError(f"{p.key('block_count')} = {p.n_layer}: must be {size} x {upper} x ({lower} + 1)")
    rope = rope_spec(p, "neox")
    high = b.scale(embed(p, b), p.number("embedding_scale", 0.0) or 1.0)
    low, state = b.embed_first("hrm.z_l_init", p.n_embd, 1), 0
    for _ in range(upper):
        for _ in range(lower):
            low, state = _stack(p, b, b.add(high, low), 0, size, state, rope), state + size
        high, state = _stack(p, b, b.add(high, low), size, size, state, rope), state + size
    return output(p, b, b.embedding(high))


def _stack(p: Params, b: ProgramBuilder, x: Value, first: int, size: int, state: int, rope: RopeSpec) -> Value:
    """Run the layers from `first` on, whose states are numbered from `state` on; the last one keeps the wanted rows."""
    style = Style(norm_weights=False, gate="sigmoid", out_bias=False)
    b.ignore("blk.*.attn_output.bias")
    for i, run in zip(range(first, first + size), range(state, state + size), strict=True):
        h = attention(p, b, norm(p, b, x, None), i, style, rope, None, run=run)
        if run == p.n_layer - 1:
            h, x = b.select_rows(h), b.select_rows(x)
        stem = f"blk.{i}.attn_output"
        x = b.add(x, b.matmul(h, stem, p.n_embd, scale=scale_of(stem, i, run), use_bias=False))
        x = b.add(x, ffn(p, b, norm(p, b, x, None), i, style))
    return norm(p, b, x, None)
