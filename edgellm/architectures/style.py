"""In what the layers of one model differ from plain ones."""

from __future__ import annotations

from dataclasses import dataclass

from edgellm.program.ops import Activation, ScaleUse


@dataclass(frozen=True, slots=True)
class Style:
    """How the layers of one model differ from plain ones."""

    layer_norm: bool = False
    """Layer norms, with biases where the file has them, in the place of RMS norms."""
    rms_bias: bool = False
    """RMS norms that have biases all the same."""
    eps: float | None = None
    """Epsilon of the RMS norms where it is not the file's."""
    norm_weights: bool = True
    """False where norms have no weights."""
    head_norms: bool = False
    """Normalise every query and key head."""
    row_norms: bool = False
    """Normalise all query heads together, and all key heads."""
    unit_norms: bool = False
    """Normalise every query and key head without weights; a vector may scale the query heads."""
    norm_after_rope: bool = False
    """Normalise queries and keys after their rotation instead of before."""
    bare: bool = False
    """Scales and biases of the projections to queries, keys and values play no part."""
    clamp: float | None = None
    """Bound of queries, keys and values."""
    scale: float | None = None
    """Factor of the scores where it is not one over the root of the head's width."""
    softcap: float | None = None
    """Bound of the scores."""
    sharpen: tuple[float, int, int] | None = None
    """Factor, period and offset by which queries grow with their position."""
    chunked: bool = False
    """Windows begin anew at every multiple of their size."""
    sinks: bool = False
    """Every head has a score of its own that takes part in the softmax."""
    alibi: float = 0.0
    """Exponent of the slopes by which scores fall with distance."""
    movable: bool = True
    """False where positions enter the residual stream."""
    causal: bool = True
    """False where tokens see those that follow them."""
    gate: Activation | None = None
    """Gate the attention's output with this activation of a projection of its input."""
    values: float = 1.0
    """Factor of what attention adds to the residual stream."""
    out_bias: bool = True
    """False where a bias of the output matrix plays no part."""
    activation: Activation = "silu"
    limit: float = 0.0
    """Bound of gate and upward product before they meet, 0 for none."""
    offset: float = 0.0
    """Added to what is gated."""
    situ: tuple[float, float] = (0.0, 0.0)
    """Bounds by tanh of gate and upward product, the gate then times its own sigmoid; (0, 0) for not."""
    gated: bool = True
    """The feed-forward network has a gate beside its upward matrix."""
    fused: bool = False
    """Gate and upward matrix are one tensor, the gate first."""
    ffn_bias: bool = True
    """False where biases of the feed-forward matrices play no part."""
    ffn_scale: ScaleUse = "unused"
    """The part of the feed-forward's scale tensors.  ggml, which defined them, applies them in some families only."""
    down_scale: ScaleUse | None = None
    """The same for the downward matrix alone."""
    pre_norms: bool = True
    """Normalise what attention and feed-forward read."""
    post_norms: bool = False
    """Normalise what attention and feed-forward add to the residual stream, too."""
    post_eps: float | None = None
    """Epsilon of these norms where it is not that of the others."""
    ffn_norm: str = "ffn_norm"
    """Name of the norm before the feed-forward network."""
    attn_post_norm: str = "post_attention_norm"
    ffn_post_norm: str = "post_ffw_norm"
    head_bias: bool = True
    """False where a bias of the logits plays no part."""
    residual: float = 1.0
    """Factor of what is added to the residual stream."""


PLAIN = Style()
