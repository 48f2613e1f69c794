"""dots3.note: latent attention gated head by head, with a window of its own widths in some layers."""

from edgellm.architectures.blocks import Style, attended, embed, gated, head, layers, norm
from edgellm.architectures.mla import Latent, latent_attention, refuse_long_contexts
from edgellm.architectures.moe import experts_of, feed
from edgellm.architectures.params import Params
from edgellm.architectures.registry import register
from edgellm.architectures.rope import global_base, local_rope_spec, rope_spec
from edgellm.program import ProgramBuilder, Value


@register("dots3note", experts=True)
def dots3note(p: Params, b: ProgramBuilder) -> Value:
    """Where a layer sees everything an indexer chooses the keys; short contexts have too few to choose from."""
    refuse_long_contexts(p)
    b.ignore("blk.*.indexer.*")
    wide, narrow = Latent.of(p), Latent.of(p, "_swa")
    everywhere = rope_spec(p, "norm", n_rot=wide.n_rot, offset=wide.rank)
    near = local_rope_spec(p, "norm", global_base(p), n_rot=narrow.n_rot, scaled=True, offset=narrow.rank)
    windows = p.windows(period=0)
    style, experts = Style(out_bias=False, ffn_scale="product"), experts_of(p, "sigmoid", use_scale=True)
    x = embed(p, b)
    for i in layers(p, b):
        widths, rope = (narrow, near) if windows[i] else (wide, everywhere)
        h = norm(p, b, x, f"blk.{i}.attn_norm")
        y = latent_attention(p, b, h, i, widths, rope, widths.key**-0.5, window=windows[i], q_scale="unused")
        y = gated(b, h, y, i, p.n_head[i], "sigmoid")
        x = b.add(*attended(p, b, x, y, i, style))
        x = b.add(x, feed(p, b, i, style, experts)(norm(p, b, x, f"blk.{i}.ffn_norm")))
    return head(p, b, x)
