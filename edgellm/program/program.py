"""A model as data: a linear list of ops, and the builder that architectures write it with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgellm.program.ops import (
    Activation,
    Add,
    Attention,
    Embed,
    Glu,
    KVState,
    MatMul,
    Op,
    PositionScale,
    RmsNorm,
    Rope,
    RopeSpec,
    Scale,
    ScaleUse,
    SelectRows,
    Softcap,
)


@dataclass(frozen=True, slots=True)
class Value:
    """A named matrix ``[rows, width]``."""

    name: str
    width: int


@dataclass(frozen=True, slots=True)
class Program:
    """What one step computes: ``ops`` in order; the last value is the logits."""

    architecture: str
    n_vocab: int
    n_embd: int
    n_ctx_train: int
    """Positions end here: the context the model was trained for."""
    ops: tuple[Op, ...]
    widths: Mapping[str, int]
    weights: Mapping[str, tuple[int, ...]]
    """Tensor name → the shape the ops need, fastest axis first."""
    states: Mapping[str, KVState]
    ignored: tuple[str, ...] = ()
    """Patterns (fnmatch) of tensors that may be in the file and change nothing."""

    @property
    def windows(self) -> tuple[int | None, ...]:
        """The distinct attention windows: each is a group of layers that share one page table."""
        found = {s.window for s in self.states.values()}
        return tuple(sorted(found, key=lambda w: (w is not None, w or 0)))

    def group(self, state: str) -> int:
        """Return the index in `windows` of a state's page table."""
        return self.windows.index(self.states[state].window)


class ProgramBuilder:
    """Collects ops.  `tensors` maps the names in the file to their shapes, so optional ones can be asked for."""

    def __init__(self, architecture: str, tensors: Mapping[str, tuple[int, ...]]) -> None:
        self.architecture = architecture
        self.tensors = tensors
        self._ops: list[Op] = []
        self._widths: dict[str, int] = {}
        self._weights: dict[str, tuple[int, ...]] = {}
        self._states: dict[str, KVState] = {}
        self._ignored: dict[str, None] = {}

    def has(self, tensor: str) -> bool:
        """Return whether the file holds `tensor`."""
        return tensor in self.tensors

    def ignore(self, *patterns: str) -> None:
        """Accept tensors that match `patterns` though no op reads them."""
        self._ignored.update(dict.fromkeys(patterns))

    def embed(self, weight: str, n_embd: int, n_vocab: int) -> Value:
        """Look up each row's token."""
        self._need(weight, (n_embd, n_vocab))
        return self._add(Embed(self._name("embed"), weight), n_embd)

    def matmul(
        self, x: Value, stem: str, n_out: int, *, weight: str | None = None, scale_use: ScaleUse = "product"
    ) -> Value:
        """Multiply by ``stem.weight``; ``stem.scale`` and ``stem.bias`` take part where the file has them.

        `weight` names another tensor to use as the matrix (an output head tied to the embedding).
        """
        matrix = weight or f"{stem}.weight"
        self._need(matrix, (x.width, n_out))
        bias = self._optional(f"{stem}.bias", (n_out,))
        scale = None if scale_use == "unused" else self._optional(f"{stem}.scale", (1,))
        scaled_bias = scale_use == "sum" and scale is not None and bias is not None
        return self._add(MatMul(self._name(stem), x.name, matrix, bias, scale, scaled_bias), n_out)

    def rms_norm(self, x: Value, weight: str | None, eps: float, size: int | None = None) -> Value:
        """Normalise each row, or each run of `size` values (per-head norms)."""
        size = x.width if size is None else size
        if weight is not None:
            self._need(weight, (size,))
        return self._add(RmsNorm(self._name(weight or "norm"), x.name, weight, eps, size), x.width)

    def rope(self, x: Value, head_dim: int, spec: RopeSpec) -> Value:
        """Rotate each head by its row's position."""
        if spec.factors is not None:
            self._need(spec.factors, (len(spec.inv_freq),))
        return self._add(Rope(self._name("rope"), x.name, head_dim, spec), x.width)

    def attention(
        self, q: Value, k: Value, v: Value, state: KVState, n_head: int, scale: float, softcap: float | None = None
    ) -> Value:
        """Attend over `state`, which takes this step's keys and values first."""
        self._states[state.name] = state
        op = Attention(self._name(state.name), q.name, k.name, v.name, state.name, n_head, scale, softcap)
        return self._add(op, n_head * state.head_dim_v)

    def add(self, a: Value, b: Value) -> Value:
        """Add two values."""
        return self._add(Add(self._name("add"), a.name, b.name), a.width)

    def scale(self, x: Value, factor: float) -> Value:
        """Multiply by a constant; a factor of one adds no op."""
        return x if factor == 1.0 else self._add(Scale(self._name("scale"), x.name, factor), x.width)

    def position_scale(self, x: Value, factor: float, period: int) -> Value:
        """Multiply each row by a factor that grows by steps of `period` positions."""
        return self._add(PositionScale(self._name("temper"), x.name, factor, period), x.width)

    def glu(self, gate: Value, up: Value, activation: Activation) -> Value:
        """Gate `up` with an activation."""
        return self._add(Glu(self._name("glu"), gate.name, up.name, activation), gate.width)

    def softcap(self, x: Value, cap: float | None) -> Value:
        """Squash into ±cap; no cap adds no op."""
        return self._add(Softcap(self._name("softcap"), x.name, cap), x.width) if cap else x

    def select_rows(self, x: Value) -> Value:
        """Keep the rows whose logits are wanted."""
        return self._add(SelectRows(self._name("rows"), x.name), x.width)

    def build(self, logits: Value, *, n_embd: int, n_ctx_train: int) -> Program:
        """Finish: `logits` must be the last value made."""
        if not self._ops or self._ops[-1].out != logits.name:
            raise ValueError(f"the logits must be the last value of the program, not {logits.name!r}")
        return Program(
            self.architecture,
            logits.width,
            n_embd,
            n_ctx_train,
            tuple(self._ops),
            dict(self._widths),
            dict(self._weights),
            dict(self._states),
            tuple(self._ignored),
        )

    def _name(self, stem: str) -> str:
        return f"{stem.removesuffix('.weight')}#{len(self._ops)}"

    def _add(self, op: Op, width: int) -> Value:
        self._ops.append(op)
        self._widths[op.out] = width
        return Value(op.out, width)

    def _need(self, tensor: str, shape: tuple[int, ...]) -> None:
        if self._weights.setdefault(tensor, shape) != shape:
            raise ValueError(f"{tensor} is used as {self._weights[tensor]} and as {shape}")

    def _optional(self, tensor: str, shape: tuple[int, ...]) -> str | None:
        if not self.has(tensor):
            return None
        self._need(tensor, shape)
        return tensor
