"""The op set: what a model may be made of.

A value is a matrix ``[rows, width]`` of float32 with one row per token of the step.  An op
reads values, weights (by tensor name) and at most one state, and makes one new value.  Weights
keep GGUF's axis order: a matrix of shape ``(n_in, n_out)`` holds ``n_out`` rows of ``n_in``.

Only `Attention` looks across rows; every other op sees each row alone.  The meaning of each op
is `edgellm.backends.reference`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Activation = Literal["silu", "gelu"]
RopeStyle = Literal["norm", "neox"]
ScaleUse = Literal["product", "sum", "unused"]
"""What a matrix's scale tensor multiplies: the product alone, the product and the bias, or nothing."""


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """A rotary position embedding of the first ``2 * len(inv_freq)`` values of every head.

    At position ``p`` pair ``i`` turns by ``p * inv_freq[i] / factors[i]``.  ``norm`` pairs are
    neighbours ``(2i, 2i+1)``; ``neox`` pairs are half a rotation apart ``(i, i + n_rot/2)``.
    """

    inv_freq: tuple[float, ...]
    style: RopeStyle
    factors: str | None = None
    """Tensor of per-pair divisors of the frequencies (``rope_freqs.weight``), or None."""
    magnitude: float = 1.0
    """Multiplies sine and cosine (YaRN's attention factor)."""

    @property
    def n_rot(self) -> int:
        """How many leading values of a head turn."""
        return 2 * len(self.inv_freq)


@dataclass(frozen=True, slots=True)
class KVState:
    """The keys and values one attention layer remembers, one page table per window."""

    name: str
    n_head_kv: int
    head_dim: int
    head_dim_v: int
    window: int | None = None
    """A query at position p sees the keys p-window+1..p; None sees all."""
    rope: RopeSpec | None = None
    """How the stored keys were rotated, so that they can be moved to other positions."""


@dataclass(frozen=True, slots=True)
class Embed:
    """``out[r] = weight[token[r]]``; weight is ``(width, n_vocab)``."""

    out: str
    weight: str


@dataclass(frozen=True, slots=True)
class MatMul:
    """``out[r] = (weight @ x[r]) * scale + bias``; weight ``(n_in, n_out)``, scale ``(1,)``, bias ``(n_out,)``.

    With `scaled_bias` it is ``(weight @ x[r] + bias) * scale``.
    """

    out: str
    x: str
    weight: str
    bias: str | None = None
    scale: str | None = None
    scaled_bias: bool = False


@dataclass(frozen=True, slots=True)
class RmsNorm:
    """Each run of ``size`` values divided by its root mean square (plus eps), times weight ``(size,)``."""

    out: str
    x: str
    weight: str | None
    eps: float
    size: int


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotate each head of ``head_dim`` values by its row's position."""

    out: str
    x: str
    head_dim: int
    spec: RopeSpec


@dataclass(frozen=True, slots=True)
class Attention:
    """Store k and v in the state, then attend to every key that each query may see.

    ``q`` is ``[rows, n_head * head_dim]``; query head ``h`` reads key head ``h // (n_head / n_head_kv)``.
    Scores are ``softcap(scale * q·k)``, out is ``[rows, n_head * head_dim_v]``.
    """

    out: str
    q: str
    k: str
    v: str
    state: str
    n_head: int
    scale: float
    softcap: float | None = None


@dataclass(frozen=True, slots=True)
class Add:
    """``out = a + b``."""

    out: str
    a: str
    b: str


@dataclass(frozen=True, slots=True)
class Scale:
    """``out = x * factor``."""

    out: str
    x: str
    factor: float


@dataclass(frozen=True, slots=True)
class PositionScale:
    """``out[r] = x[r] * (1 + factor * ln(1 + floor(position[r] / period)))``: queries sharpened with distance."""

    out: str
    x: str
    factor: float
    period: int


@dataclass(frozen=True, slots=True)
class Glu:
    """``out = activation(gate) * up``; ``gelu`` is the tanh form."""

    out: str
    gate: str
    up: str
    activation: Activation


@dataclass(frozen=True, slots=True)
class Softcap:
    """``out = cap * tanh(x / cap)``."""

    out: str
    x: str
    cap: float


@dataclass(frozen=True, slots=True)
class SelectRows:
    """Keep only the rows whose logits the step wants."""

    out: str
    x: str


Op = Embed | MatMul | RmsNorm | Rope | Attention | Add | Scale | PositionScale | Glu | Softcap | SelectRows

INPUTS: dict[type, tuple[str, ...]] = {
    Embed: (),
    MatMul: ("x",),
    RmsNorm: ("x",),
    Rope: ("x",),
    Attention: ("q", "k", "v"),
    Add: ("a", "b"),
    Scale: ("x",),
    PositionScale: ("x",),
    Glu: ("gate", "up"),
    Softcap: ("x",),
    SelectRows: ("x",),
}
"""The fields of each op that name values it reads."""


def inputs(op: Op) -> tuple[str, ...]:
    """Return the names of the values that `op` reads."""
    return tuple(getattr(op, field) for field in INPUTS[type(op)])
