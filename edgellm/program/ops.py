"""The op set: what a model may be made of.

A value is a matrix ``[rows, width]`` of float32 with one row per token of the step.  An op
reads values, weights (by tensor name) and at most one state, and makes one new value.  Weights
keep GGUF's axis order: a matrix of shape ``(n_in, n_out)`` holds ``n_out`` rows of ``n_in``.

Only `Attention` and the ops of `edgellm.program.recurrent` look across rows; every other op sees each
row alone.  The meaning of each op is `edgellm.backends.reference`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edgellm.program.experts import MatMulExperts, Mix, Route
from edgellm.program.recurrent import Conv1d, GatedDelta, SsmScan

Activation = Literal["silu", "gelu", "gelu_quick", "relu", "relu2", "sigmoid", "softplus", "tanh"]
"""``gelu`` is the tanh form, ``gelu_quick`` is ``x * sigmoid(1.702 x)``, ``relu2`` the square of relu."""
RopeStyle = Literal["norm", "neox"]
ScaleUse = Literal["product", "sum", "unused"]
"""What a matrix's scale tensor multiplies: the product alone, the product and the bias, or nothing."""


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """A rotary position embedding of ``2 * len(inv_freq)`` values of every head, from `offset` on.

    At position ``p`` pair ``i`` turns by ``p * inv_freq[i] / factors[i]``.  ``norm`` pairs are
    neighbours ``(2i, 2i+1)``; ``neox`` pairs are half a rotation apart ``(i, i + n_rot/2)``.
    """

    inv_freq: tuple[float, ...]
    style: RopeStyle
    factors: str | None = None
    """Tensor of per-pair divisors of the frequencies (``rope_freqs.weight``), or None."""
    magnitude: float = 1.0
    """Multiplies sine and cosine (YaRN's attention factor)."""
    offset: int = 0
    """Values of a head before the first that turns."""

    @property
    def n_rot(self) -> int:
        """How many values of a head turn."""
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
    chunked: bool = False
    """The window begins anew at every multiple of its size: a query at p sees p//window*window..p."""
    movable: bool = True
    """False where keys depend on their position in a way that `rope` does not undo."""
    causal: bool = True
    """False where a query also sees what follows it in its step, or within a window ``window//2`` to both sides."""


@dataclass(frozen=True, slots=True)
class Embed:
    """``out[r] = weight[token[r]]``, or the row of its position, or the first; weight is ``(width, n_rows)``.

    Positions beyond the last row use the last one.
    """

    out: str
    weight: str
    by: Literal["token", "position", "first"] = "token"


@dataclass(frozen=True, slots=True)
class MatMul:
    """``out[r] = (weight @ x[r]) * scale + bias``; weight ``(n_in, n_out)``, scale ``(1,)``, bias ``(n_out,)``.

    With `scaled_bias` it is ``(weight @ x[r] + bias) * scale``.  A matrix may hold several, one after the other
    (fused projections): then `first` is the row of the weight and element of the bias to begin with.
    """

    out: str
    x: str
    weight: str
    bias: str | None = None
    scale: str | None = None
    scaled_bias: bool = False
    first: int = 0


@dataclass(frozen=True, slots=True)
class RmsNorm:
    """Each run of ``size`` values divided by its root mean square (plus eps), times weight.

    The weight is ``(size,)`` for all runs, or ``(size, runs)`` with one row for each.
    """

    out: str
    x: str
    weight: str | None
    eps: float
    size: int


@dataclass(frozen=True, slots=True)
class LayerNorm:
    """Each run of ``size`` values less its mean, divided by its deviation, times weight plus bias.

    ``out = (x - mean) / sqrt(variance + eps) * weight + bias``; weight and bias as for `RmsNorm`.  One that is not
    `centred` keeps its mean and is divided by its root mean square.
    """

    out: str
    x: str
    weight: str | None
    bias: str | None
    eps: float
    size: int
    centred: bool = True


@dataclass(frozen=True, slots=True)
class L2Norm:
    """Each run of ``size`` values divided by its length, or by ``eps`` where that is larger."""

    out: str
    x: str
    eps: float
    size: int


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotate each head of ``head_dim`` values by its row's position; the rest of a head stays as it is."""

    out: str
    x: str
    head_dim: int
    spec: RopeSpec


@dataclass(frozen=True, slots=True)
class Attention:
    """Store k and v in the state, then attend to every key that each query may see.

    ``q`` is ``[rows, n_head * head_dim]``; query head ``h`` reads key head ``h // (n_head / n_head_kv)``.
    Scores are ``softcap(scale * q·k)``, out is ``[rows, n_head * head_dim_v]``.  Without k and v the state is what
    another layer stored in this step and before.
    """

    out: str
    q: str
    k: str | None
    v: str | None
    state: str
    n_head: int
    scale: float
    softcap: float | None = None
    sinks: str | None = None
    """Tensor ``(n_head,)`` of scores that take part in each softmax with a value of zero."""
    alibi: float = 0.0
    """The largest slope's exponent: scores fall with distance (Press et al., "Train Short, Test Long"), 0 for not."""


@dataclass(frozen=True, slots=True)
class Add:
    """``out = a + b``."""

    out: str
    a: str
    b: str


@dataclass(frozen=True, slots=True)
class Mul:
    """``out = a * b``; each value of a narrower ``b`` multiplies as many neighbours in ``a`` as there are for it."""

    out: str
    a: str
    b: str


@dataclass(frozen=True, slots=True)
class Slice:
    """Of each run of ``size`` values, those from ``start`` on: as many as make the output's width."""

    out: str
    x: str
    size: int
    start: int


@dataclass(frozen=True, slots=True)
class Concat:
    """The first of `runs` equal runs of ``a``, the first of ``b``, the second of ``a``, and so on.

    A ``b`` that is one run itself follows each run of ``a`` if `shared`.
    """

    out: str
    a: str
    b: str
    runs: int
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Dot:
    """``out[r, i] = sum of a * b`` over the ``i``-th run of `size` values."""

    out: str
    a: str
    b: str
    size: int


@dataclass(frozen=True, slots=True)
class Scale:
    """``out = x * factor * weight + shift``; the weight is a vector.

    As in `Mul`, a short weight's element multiplies several neighbours.  With `inverse` the weight divides.
    """

    out: str
    x: str
    factor: float
    weight: str | None = None
    inverse: bool = False
    shift: float = 0.0


@dataclass(frozen=True, slots=True)
class PositionScale:
    """``out[r] = x[r] * (1 + factor * ln(1 + floor((position[r] + offset) / period)))``: queries grow with distance."""

    out: str
    x: str
    factor: float
    period: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Activate:
    """``out = activation(x)``."""

    out: str
    x: str
    activation: Activation


@dataclass(frozen=True, slots=True)
class Xielu:
    """The expanded integral of ELU (Huang & Schlag, "Deriving Activation Functions Using Integration", 2024).

    ``out = (alpha_p * x + beta) * x`` where x is positive, else ``(expm1(min(x, eps)) - x) * alpha_n + beta * x``.
    """

    out: str
    x: str
    alpha_p: float
    alpha_n: float
    beta: float
    eps: float


@dataclass(frozen=True, slots=True)
class Glu:
    """``out = activation(gate) * (up + offset)``; a narrower gate covers several neighbours, as in `Mul`.

    A `limit` bounds the gate from above and ``up`` on both sides first; 0 is none.
    """

    out: str
    gate: str
    up: str
    activation: Activation
    limit: float = 0.0
    offset: float = 0.0


@dataclass(frozen=True, slots=True)
class Softcap:
    """``out = cap * tanh(x / cap)``, or ``x`` cut off at ±cap if `hard`."""

    out: str
    x: str
    cap: float
    hard: bool = False


@dataclass(frozen=True, slots=True)
class Softmax:
    """``out = exp(x)`` of each run of ``size`` values, divided by the run's sum."""

    out: str
    x: str
    size: int


@dataclass(frozen=True, slots=True)
class Sinkhorn:
    """Make each run of ``size * size`` values a matrix whose rows and columns nearly sum to one.

    Its rows go through softmax, plus ``eps``; then the columns are divided by their sums plus ``eps``, and in each
    further round the rows and the columns are.  Sinkhorn & Knopp, 1967.
    """

    out: str
    x: str
    size: int
    rounds: int
    eps: float


@dataclass(frozen=True, slots=True)
class SelectRows:
    """Keep only the rows whose logits the step wants."""

    out: str
    x: str


Op = (
    Embed
    | MatMul
    | MatMulExperts
    | Route
    | RmsNorm
    | LayerNorm
    | L2Norm
    | Rope
    | Attention
    | Add
    | Mul
    | Mix
    | Dot
    | Slice
    | Concat
    | Scale
    | PositionScale
    | Activate
    | Xielu
    | Glu
    | Softcap
    | Softmax
    | Sinkhorn
    | SelectRows
    | Conv1d
    | SsmScan
    | GatedDelta
)

INPUTS: dict[type, tuple[str, ...]] = {
    Embed: (),
    MatMul: ("x",),
    MatMulExperts: ("x", "routes"),
    Route: ("x",),
    RmsNorm: ("x",),
    LayerNorm: ("x",),
    L2Norm: ("x",),
    Rope: ("x",),
    Attention: ("q", "k", "v"),
    Add: ("a", "b"),
    Mul: ("a", "b"),
    Mix: ("x", "by"),
    Dot: ("a", "b"),
    Slice: ("x",),
    Concat: ("a", "b"),
    Scale: ("x",),
    PositionScale: ("x",),
    Activate: ("x",),
    Xielu: ("x",),
    Glu: ("gate", "up"),
    Softcap: ("x",),
    Softmax: ("x",),
    Sinkhorn: ("x",),
    SelectRows: ("x",),
    Conv1d: ("x",),
    SsmScan: ("x", "dt", "b", "c"),
    GatedDelta: ("q", "k", "v", "g", "beta"),
}
"""The fields of each op that name values it reads; one may be None."""


def inputs(op: Op) -> tuple[str, ...]:
    """Return the names of the values that `op` reads."""
    names = (getattr(op, field) for field in INPUTS[type(op)])
    return tuple(name for name in names if name is not None)
