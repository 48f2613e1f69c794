"""What encoders are made of: layers that are normalised behind, and what becomes of the last one."""

from __future__ import annotations

from edgellm.architectures.blocks import Style, attended, attention, ffn, norm
from edgellm.architectures.params import Params
from edgellm.program import ProgramBuilder, RopeSpec, Value
from edgellm.program.ops import Activation


def encoder_layer(p: Params, b: ProgramBuilder, x: Value, i: int, rope: RopeSpec | None, style: Style) -> Value:
    """Return the residual stream after layer `i`, normalised after attention and after the feed-forward network.

    Jina's code models normalise once more, with the stream added again.
    """
    blk = f"blk.{i}"
    x, h = attended(p, b, x, attention(p, b, x, i, style, rope, None), i, style)
    h = norm(p, b, b.add(h, x), f"{blk}.attn_output_norm", style)
    if b.has(f"{blk}.attn_norm_2.weight"):
        h = norm(p, b, b.add(h, x), f"{blk}.attn_norm_2", style)
    return norm(p, b, b.add(ffn(p, b, h, i, style), h), f"{blk}.layer_output_norm", style)


def vectors(p: Params, b: ProgramBuilder, x: Value, style: Style, activation: Activation = "tanh") -> Value:
    """Return the embeddings of the wanted rows, or where the file asks for ranks the scores that are made of them."""
    if p.pooling != "rank":
        b.ignore("cls.*")
        return b.embedding(x)
    if b.has("cls.weight"):
        x = b.activate(b.matmul(x, "cls", p.n_embd), activation)
    if b.has("cls.norm.weight"):
        x = norm(p, b, x, "cls.norm", style)
    scores = b.tensors.get("cls.output.weight", ())[1:]
    if scores:
        x = b.matmul(x, "cls.output", scores[0])
    return b.embedding(x)
