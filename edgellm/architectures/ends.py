"""Where a model begins and ends: embedding, layers, norms, logits."""

from __future__ import annotations

from edgellm.architectures.params import Params
from edgellm.architectures.style import PLAIN, Style
from edgellm.program import ProgramBuilder, Value


def layers(p: Params, b: ProgramBuilder) -> range:
    """Return the layers that make the logits.  Accepts the tensors of those that predict further tokens."""
    b.ignore(*(f"blk.{i}.*" for i in range(p.depth, p.n_layer)))
    return range(p.depth)


def ignore_dense(b: ProgramBuilder, i: int) -> None:
    """Accept a dense feed-forward network beside layer `i`'s experts, if it has any: it plays no part."""
    if b.has(f"blk.{i}.ffn_gate_inp.weight"):
        b.ignore(f"blk.{i}.ffn_gate.*", f"blk.{i}.ffn_up.*", f"blk.{i}.ffn_down.*")


def embed(p: Params, b: ProgramBuilder) -> Value:
    """Return each row's token embedding.  Also accepts the activation scales no CPU needs."""
    b.ignore("*.input_scale")
    return b.embed("token_embd.weight", p.n_embd, p.n_vocab)


def norm(
    p: Params, b: ProgramBuilder, x: Value, stem: str | None, style: Style = PLAIN, eps: float | None = None
) -> Value:
    """Normalise each row with the weights of `stem`, if any."""
    stem = stem if style.norm_weights else None
    if style.layer_norm:
        return b.layer_norm(x, stem, p.eps_layer if eps is None else eps)
    eps = eps if eps is not None else p.eps if style.eps is None else style.eps
    if style.rms_bias:
        return b.layer_norm(x, stem, eps, centred=False)
    return b.rms_norm(x, stem if stem is None or b.has(stem) else f"{stem}.weight", eps)


def head(
    p: Params,
    b: ProgramBuilder,
    x: Value,
    softcap: float | None = None,
    *,
    norm: str | None = "output_norm",
    style: Style = PLAIN,
    eps: float | None = None,
    scale: float = 1.0,
) -> Value:
    """Return the logits of the last layer's stream, normalised."""
    return output(p, b, b.embedding(_norm(p, b, x, norm, style, eps)), softcap, style=style, scale=scale)


def output(
    p: Params, b: ProgramBuilder, x: Value, softcap: float | None = None, *, style: Style = PLAIN, scale: float = 1.0
) -> Value:
    """Return the logits; the output matrix is the embedding's where the file has no own."""
    weight = "output.weight" if b.has("output.weight") else "token_embd.weight"
    if not style.head_bias:
        b.ignore("output.bias")
    logits = b.matmul(x, "output", p.n_vocab, weight=weight, use_bias=style.head_bias)
    return b.softcap(b.scale(logits, scale), softcap)


_norm = norm
"""`norm` for functions that have a parameter of this name."""
