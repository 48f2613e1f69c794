"""gpt-oss: a window in every other layer, attention sinks, and experts with a bounded gate."""

from edgellm.architectures.blocks import Style, embed, head, layer, layers
from edgellm.architectures.moe import Experts, feed
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import global_base, local_rope_spec, rope_spec
from edgellm.program import ProgramBuilder, Value


@register("gpt-oss", experts=True)
def gpt_oss(p: Params, b: ProgramBuilder) -> Value:
    """The experts' weights are a softmax over the chosen ones' logits."""
    everywhere, near = rope_spec(p, "neox"), local_rope_spec(p, "neox", global_base(p), scaled=True)
    windows = p.windows(period=2)
    style = Style(sinks=True, ffn_norm="post_attention_norm")
    experts = Experts("chosen", normalised=False, activation="gelu_quick", limits=(7.0,) * p.n_layer, offset=1.0)
    x = embed(p, b)
    for i in layers(p, b):
        rope = near if windows[i] else everywhere
        x = layer(p, b, x, i, rope=rope, window=windows[i], style=style, feed=feed(p, b, i, style, experts))
    return head(p, b, x)
