"""Llama 1–3 and everything published in its form: Mistral, SmolLM, TinyLlama, Yi…"""

from edgellm.architectures.blocks import Style, embed, head, layer
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import rope_spec
from edgellm.program import ProgramBuilder, Value


@register("llama")
def llama(p: Params, b: ProgramBuilder) -> Value:
    """Llama 3 stretches its rotation pair by pair, by a tensor."""
    b.ignore("blk.*.attn_rot_embd.weight")  # old converters stored the frequencies
    rope = rope_spec(p, "norm", factors="rope_freqs.weight")
    style = Style(ffn_scale="sum")
    x = embed(p, b)
    for i in range(p.n_layer):
        x = layer(p, b, x, i, rope=rope, style=style)
    return head(p, b, x)
