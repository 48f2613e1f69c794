"""What architectures write programs with."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from edgellm.program.experts import MatMulExperts, Mix, Route, Scoring
from edgellm.program.ops import (
    Activate,
    Activation,
    Add,
    Attention,
    Concat,
    Dot,
    Embed,
    Glu,
    KVState,
    L2Norm,
    LayerNorm,
    MatMul,
    Mul,
    Op,
    PositionScale,
    RmsNorm,
    Rope,
    RopeSpec,
    Scale,
    ScaleUse,
    SelectRows,
    Sinkhorn,
    Slice,
    Softcap,
    Softmax,
    Xielu,
)
from edgellm.program.program import Pooling, Program, Value
from edgellm.program.recurrent import Conv1d, GatedDelta, RecurrentState, SsmScan


class ProgramBuilder:
    """Collects ops.  `tensors` maps the names in the file to their shapes, so optional ones can be asked for."""

    def __init__(self, architecture: str, tensors: Mapping[str, tuple[int, ...]]) -> None:
        self.architecture = architecture
        self.tensors = tensors
        self._ops: list[Op] = []
        self._widths: dict[str, int] = {}
        self._weights: dict[str, tuple[int, ...]] = {}
        self._states: dict[str, KVState] = {}
        self._recurrent: dict[str, RecurrentState] = {}
        self._ignored: dict[str, None] = {}
        self._constants: dict[str, tuple[float, ...]] = {}
        self.embedded: str | None = None
        """The value that holds the embeddings."""

    def has(self, tensor: str) -> bool:
        """Return whether the file holds `tensor`."""
        return tensor in self.tensors

    def ignore(self, *patterns: str) -> None:
        """Accept tensors that match `patterns` though no op reads them."""
        self._ignored.update(dict.fromkeys(patterns))

    def constant(self, name: str, values: Iterable[float]) -> str:
        """Bring a vector that no file has, and return its name as a weight."""
        self._constants[name] = tuple(values)
        self._need(name, (len(self._constants[name]),))
        return name

    def embed_constant(self, name: str, values: Iterable[float]) -> Value:
        """Give each row the same values, which no file has."""
        self._constants[name] = tuple(values)
        return self.embed_first(name, len(self._constants[name]), 1)

    def embed(self, weight: str, n_embd: int, n_vocab: int) -> Value:
        """Look up each row's token."""
        self._need(weight, (n_embd, n_vocab))
        return self._add(Embed(self._name("embed"), weight), n_embd)

    def embed_positions(self, weight: str, n_embd: int, n_positions: int) -> Value:
        """Look up each row's position."""
        self._need(weight, (n_embd, n_positions))
        return self._add(Embed(self._name("embed"), weight, "position"), n_embd)

    def embed_first(self, weight: str, n_embd: int, n_rows: int) -> Value:
        """Give each row the first row of a table (of token types: all tokens are of the first)."""
        self._need(weight, (n_embd, n_rows))
        return self._add(Embed(self._name("embed"), weight, "first"), n_embd)

    def matmul(
        self,
        x: Value,
        stem: str,
        n_out: int,
        *,
        weight: str | None = None,
        scale_use: ScaleUse = "product",
        scale: str | None = None,
        use_bias: bool = True,
        rows: tuple[int, int] | None = None,
    ) -> Value:
        """Multiply by ``stem.weight``; ``stem.scale`` and ``stem.bias`` take part where the file has them.

        `weight` names another tensor to use as the matrix (an output head tied to the embedding), `scale` another one
        as the scale.  `rows` are the first row to use of a matrix that holds several, and how many rows it has in all.
        """
        matrix = weight or f"{stem}.weight"
        first, n_all = rows or (0, n_out)
        self._need(matrix, (x.width, n_all))
        bias = self._optional(f"{stem}.bias", (n_all,)) if use_bias else None
        scale = None if scale_use == "unused" else self._optional(scale or f"{stem}.scale", (1,))
        scaled_bias = scale_use == "sum" and scale is not None and bias is not None
        return self._add(MatMul(self._name(stem), x.name, matrix, bias, scale, scaled_bias, first), n_out)

    def matmul_experts(
        self,
        x: Value,
        routes: Value | None,
        stem: str,
        n_out: int,
        n_slots: int,
        n_expert: int,
        *,
        shared: bool = False,
        use_scale: bool = True,
        rows: tuple[int, int] | None = None,
    ) -> Value:
        """Multiply each slot by its expert's matrix; ``stem.bias`` takes part where the file has it, as the scale may.

        `shared` says that `x` is one input for all slots; `rows` is as for `matmul`.  Scales of matrices that hold
        several are those of ``ffn_up_exps``.
        """
        first, n_all = rows or (0, n_out)
        self._need(f"{stem}.weight", (x.width if shared else x.width // n_slots, n_all, n_expert))
        bias = self._optional(f"{stem}.bias", (n_all, n_expert))
        scale = self._optional(f"{stem.replace('gate_up', 'up')}.scale", (n_expert,)) if use_scale else None
        source = None if routes is None else routes.name
        op = MatMulExperts(self._name(stem), x.name, source, f"{stem}.weight", n_slots, bias, scale, first)
        return self._add(op, n_slots * n_out)

    def route(
        self,
        logits: Value,
        n_used: int,
        scoring: Scoring,
        *,
        bias: str | None = None,
        normalised: bool = False,
        scale: float = 1.0,
        groups: tuple[int, int] = (1, 1),
    ) -> Value:
        """Choose experts for each row: their numbers, then their weights.  `groups`: how many, and how many used."""
        if bias is not None:
            self._need(bias, (logits.width,))
        op = Route(self._name("route"), logits.name, n_used, scoring, bias, normalised, scale, *groups)
        return self._add(op, 2 * n_used)

    def mix(self, x: Value, by: Value, size: int) -> Value:
        """Mix the runs of `size` values of each row with coefficients of its own."""
        return self._add(Mix(self._name("mix"), x.name, by.name, size), by.width * size // max(1, x.width // size))

    def rms_norm(self, x: Value, weight: str | None, eps: float, size: int | None = None) -> Value:
        """Normalise each row, or each run of `size` values (per-head norms)."""
        size = x.width if size is None else size
        if weight is not None:
            of_runs = (size, x.width // size)
            self._need(weight, of_runs if self.tensors.get(weight) == of_runs else (size,))
        return self._add(RmsNorm(self._name(weight or "norm"), x.name, weight, eps, size), x.width)

    def layer_norm(
        self, x: Value, stem: str | None, eps: float, size: int | None = None, *, centred: bool = True
    ) -> Value:
        """Normalise to mean 0 and deviation 1; ``stem.weight`` is needed, ``stem.bias`` optional."""
        size = x.width if size is None else size
        weight = bias = None
        if stem is not None:
            weight = f"{stem}.weight"
            of_runs = (size, x.width // size)
            shape = of_runs if self.tensors.get(weight) == of_runs else (size,)
            self._need(weight, shape)
            bias = self._optional(f"{stem}.bias", shape)
        return self._add(LayerNorm(self._name(stem or "norm"), x.name, weight, bias, eps, size, centred), x.width)

    def l2_norm(self, x: Value, eps: float, size: int) -> Value:
        """Divide each run of `size` values by its length."""
        return self._add(L2Norm(self._name("l2"), x.name, eps, size), x.width)

    def rope(self, x: Value, head_dim: int, spec: RopeSpec) -> Value:
        """Rotate each head by its row's position."""
        if spec.factors is not None:
            self._need(spec.factors, (len(spec.inv_freq),))
        return self._add(Rope(self._name("rope"), x.name, head_dim, spec), x.width)

    def attention(
        self,
        q: Value,
        k: Value | None,
        v: Value | None,
        state: KVState,
        n_head: int,
        scale: float,
        softcap: float | None = None,
        *,
        sinks: str | None = None,
        alibi: float = 0.0,
    ) -> Value:
        """Attend over `state`, which takes this step's keys and values first, if any."""
        self._states[state.name] = state
        if sinks is not None:
            self._need(sinks, (n_head,))
        key, value = None if k is None else k.name, None if v is None else v.name
        op = Attention(self._name(state.name), q.name, key, value, state.name, n_head, scale, softcap, sinks, alibi)
        return self._add(op, n_head * state.head_dim_v)

    def add(self, a: Value, b: Value) -> Value:
        """Add two values."""
        return self._add(Add(self._name("add"), a.name, b.name), a.width)

    def mul(self, a: Value, b: Value) -> Value:
        """Multiply two values element by element; a narrower `b` covers several neighbours with each."""
        return self._add(Mul(self._name("mul"), a.name, b.name), a.width)

    def softmax(self, x: Value, size: int | None = None) -> Value:
        """Turn each row, or each run of `size` values, into shares that sum to one."""
        size = x.width if size is None else size
        return self._add(Softmax(self._name("softmax"), x.name, size), x.width)

    def sinkhorn(self, x: Value, size: int, rounds: int, eps: float) -> Value:
        """Turn each row, a matrix of `size` rows, into one whose rows and columns nearly sum to one."""
        return self._add(Sinkhorn(self._name("sinkhorn"), x.name, size, rounds, eps), x.width)

    def slice(self, x: Value, start: int, length: int, size: int | None = None) -> Value:
        """Take `length` values from `start` on out of each row, or out of each run of `size` values."""
        size = x.width if size is None else size
        return self._add(Slice(self._name("slice"), x.name, size, start), x.width // size * length)

    def concat(self, a: Value, b: Value, runs: int = 1, *, shared: bool = False) -> Value:
        """Join two values, run by run; a `shared` `b` joins each run of `a`."""
        return self._add(
            Concat(self._name("concat"), a.name, b.name, runs, shared), a.width + b.width * (runs if shared else 1)
        )

    def dot(self, a: Value, b: Value, size: int) -> Value:
        """Sum the products over each run of `size` values."""
        return self._add(Dot(self._name("dot"), a.name, b.name, size), a.width // size)

    def scale(
        self, x: Value, factor: float = 1.0, *, weight: str | None = None, inverse: bool = False, shift: float = 0.0
    ) -> Value:
        """Multiply by a constant and a vector, if any, and add a constant; without effect it adds no op."""
        if factor == 1.0 and weight is None and shift == 0.0:
            return x
        if weight is not None:
            self._need(weight, self.tensors.get(weight, (x.width,)))
        return self._add(Scale(self._name("scale"), x.name, factor, weight, inverse, shift), x.width)

    def position_scale(self, x: Value, factor: float, period: int, offset: int = 0) -> Value:
        """Multiply each row by a factor that grows by steps of `period` positions."""
        return self._add(PositionScale(self._name("temper"), x.name, factor, period, offset), x.width)

    def activate(self, x: Value, activation: Activation) -> Value:
        """Apply an activation to every value."""
        return self._add(Activate(self._name(activation), x.name, activation), x.width)

    def xielu(self, x: Value, alpha_p: float, alpha_n: float, beta: float, eps: float) -> Value:
        """Apply xIELU, whose numbers are the model's own, to every value."""
        return self._add(Xielu(self._name("xielu"), x.name, alpha_p, alpha_n, beta, eps), x.width)

    def glu(self, gate: Value, up: Value, activation: Activation, limit: float = 0.0, offset: float = 0.0) -> Value:
        """Gate `up` with an activation; a narrower gate covers several neighbours with each of its values."""
        return self._add(Glu(self._name("glu"), gate.name, up.name, activation, limit, offset), up.width)

    def softcap(self, x: Value, cap: float | None, *, hard: bool = False) -> Value:
        """Squash into ±cap, or cut off there if `hard`; no cap adds no op."""
        return self._add(Softcap(self._name("softcap"), x.name, cap, hard), x.width) if cap else x

    def conv1d(self, x: Value, stem: str, taps: int, *, silu: bool = False) -> Value:
        """Convolve each channel with the last `taps` rows; ``stem.bias`` takes part where the file has it."""
        weight, bias = f"{stem}.weight", f"{stem}.bias"
        shape = self.tensors.get(weight, ())
        stored_apart = len(shape) == 3 and shape[::2] == (taps, x.width)  # (taps, 1, channels), as PyTorch has it
        self._need(weight, shape if stored_apart else (taps, x.width))
        state = self._remember(stem, (taps - 1, x.width))
        op = Conv1d(self._name(stem), x.name, weight, self._optional(bias, (x.width,)), state, silu)
        return self._add(op, x.width)

    def ssm_scan(
        self, x: Value, dt: Value, b: Value, c: Value, stem: str, d_state: int, n_group: int, bias: str | None = None
    ) -> Value:
        """Scan with the weights ``stem_a`` and ``stem_d``; `dt` has one column per head, `bias` is added to it."""
        n_head = dt.width
        a, d = f"{stem}_a", f"{stem}_d"
        self._flat(a, d_state * n_head if self.tensors.get(a) == (d_state, n_head) else n_head)
        self._flat(d, n_head)
        if bias is not None:
            self._flat(bias, n_head)
        state = self._remember(stem, (n_head, x.width // n_head, d_state))
        op = SsmScan(self._name(stem), x.name, dt.name, b.name, c.name, a, d, bias, state, n_group)
        return self._add(op, x.width)

    def gated_delta(
        self,
        q: Value,
        k: Value,
        v: Value,
        g: Value,
        beta: Value,
        stem: str,
        head_dim: int,
        *,
        grouped: bool = False,
        decays: bool = False,
    ) -> Value:
        """Apply the delta rule with ``stem_a`` and ``stem_dt.bias``; `beta` has one column per head.

        `decays` says that `g` holds the logarithms of the decays already.
        """
        n_head, a, bias = beta.width, None, None
        if not decays:
            a, bias = f"{stem}_a", f"{stem}_dt.bias"
            self._flat(a, n_head)
            self._flat(bias, g.width)
        state = self._remember(stem, (n_head, v.width // n_head, head_dim))
        names = (q.name, k.name, v.name, g.name, beta.name, a, bias, state)
        op = GatedDelta(self._name(stem), *names, q.width // head_dim, head_dim**-0.5, grouped)
        return self._add(op, v.width)

    def select_rows(self, x: Value) -> Value:
        """Keep the rows whose logits are wanted."""
        return self._add(SelectRows(self._name("rows"), x.name), x.width)

    def embedding(self, x: Value) -> Value:
        """Declare that `x` holds the vectors of the wanted rows; an encoder returns it in the place of logits."""
        self.embedded = x.name
        return x

    def build(
        self,
        result: Value,
        *,
        n_embd: int,
        n_ctx_train: int,
        n_vocab: int | None = None,
        pooling: Pooling | None = None,
    ) -> Program:
        """Finish: `result`, the logits or in an encoder the embedding, must be the last value made.

        `n_vocab` is the number of tokens where it is not the number of logits.
        """
        if not self._ops or self._ops[-1].out != result.name:
            raise ValueError(f"the logits must be the last value of the program, not {result.name!r}")
        return Program(
            self.architecture,
            result.width if n_vocab is None else n_vocab,
            n_embd,
            n_ctx_train,
            tuple(self._ops),
            dict(self._widths),
            dict(self._weights),
            dict(self._states),
            tuple(self._ignored),
            dict(self._recurrent),
            dict(self._constants),
            self.embedded,
            pooling,
        )

    def _name(self, stem: str) -> str:
        return f"{stem.removesuffix('.weight')}#{len(self._ops)}"

    def _add(self, op: Op, width: int) -> Value:
        self._ops.append(op)
        self._widths[op.out] = width
        return Value(op.out, width)

    def _remember(self, stem: str, shape: tuple[int, ...]) -> str:
        name = f"{stem}.state"
        self._recurrent[name] = RecurrentState(name, shape)
        return name

    def _flat(self, tensor: str, n: int) -> None:
        """Need a tensor of `n` elements, in whatever shape the file keeps them."""
        shape = self.tensors.get(tensor, ())
        self._need(tensor, shape if math.prod(shape) == n else (n,))

    def _need(self, tensor: str, shape: tuple[int, ...]) -> None:
        if self._weights.setdefault(tensor, shape) != shape:
            raise ValueError(f"{tensor} is used as {self._weights[tensor]} and as {shape}")

    def _optional(self, tensor: str, shape: tuple[int, ...]) -> str | None:
        if not self.has(tensor):
            return None
        self._need(tensor, shape)
        return tensor
