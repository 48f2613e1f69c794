"""Mixtures of experts, shared by the families."""

from __future__ import annotations

from dataclasses import dataclass

from edgellm.architectures.blocks import Feed, Style, ffn, meet
from edgellm.architectures.params import Params
from edgellm.errors import ModelFormatError, UnsupportedModelError
from edgellm.program import ProgramBuilder, Value
from edgellm.program.experts import Scoring
from edgellm.program.ops import Activation

_SCORINGS: dict[int, Scoring] = {1: "softmax", 2: "sigmoid", 3: "chosen"}
"""``expert_gating_func`` → scoring; 0 stands for the family's own."""


@dataclass(frozen=True, slots=True)
class Experts:
    """How the mixtures of one model choose and run their experts."""

    scoring: Scoring = "softmax"
    normalised: bool = True
    """The chosen experts' weights sum to one."""
    scale: float = 1.0
    """Factor of all weights."""
    activation: Activation = "silu"
    limits: tuple[float, ...] = ()
    """Per layer the bound of gate and product before they meet, 0 for none."""
    offset: float = 0.0
    """Added to what is gated."""
    weigh_before: bool = False
    """Weigh what the experts read, not what they make."""
    situ: tuple[float, float] = (0.0, 0.0)
    """As in `Style`."""
    width: int = 0
    """Of what experts read and make, 0 for that of the stream."""
    use_scale: bool = False
    """Apply the scale tensors of the experts' matrices, as ggml does in some families only."""


def experts_of(
    p: Params,
    scoring: Scoring = "softmax",
    *,
    normalised: bool | None = None,
    activation: Activation = "silu",
    use_scale: bool = False,
) -> Experts:
    """Return what the file's ``expert_*`` keys say; `scoring` is the family's own, so is `normalised`, if given."""
    name = "expert_gating_func"
    number = p.integer(name, 0, minimum=0)
    if number not in (0, *_SCORINGS):
        raise UnsupportedModelError(f"{p.key(name)} = {number} is not supported")
    if normalised is None:
        normalised = p.flag("expert_weights_norm", False)
    scale = p.number("expert_weights_scale", 0.0) or 1.0
    return Experts(_SCORINGS.get(number, scoring), normalised, scale, activation, use_scale=use_scale)


def feed(p: Params, b: ProgramBuilder, i: int, style: Style, experts: Experts, logits: Value | None = None) -> Feed:
    """Return layer `i`'s feed-forward network: a mixture where the file has a router, else dense."""
    if i == 0 and p.n_expert and not any(name.endswith(".ffn_gate_inp.weight") for name in b.tensors):
        raise ModelFormatError(f"{p.key('expert_count')} = {p.n_expert}: the file has no router (ffn_gate_inp)")

    def mix(x: Value) -> Value:
        if not b.has(f"blk.{i}.ffn_gate_inp.weight"):
            return ffn(p, b, x, i, style)
        return shared(p, b, x, i, style, mixture(p, b, x, i, experts, logits))

    return mix


def shared(p: Params, b: ProgramBuilder, x: Value, i: int, style: Style, mixed: Value) -> Value:
    """Add the expert that takes part in every row, if there is one, with its own gate, if that has one."""
    up = b.tensors.get(f"blk.{i}.ffn_up_shexp.weight", ())
    if len(up) != 2:
        return mixed
    y = ffn(p, b, x, i, style, suffix="_shexp", n_ff=up[1] // 2 if style.fused else up[1])
    gate = f"blk.{i}.ffn_gate_inp_shexp"
    if b.has(f"{gate}.weight"):
        y = b.glu(b.matmul(x, gate, 1), y, "sigmoid")
    return b.add(mixed, y)


def mixture(
    p: Params,
    b: ProgramBuilder,
    x: Value,
    i: int,
    experts: Experts,
    logits: Value | None = None,
    stem: str = "exps",
    n_ff: int | None = None,
) -> Value:
    """Return the weighted sum of the experts that each row chooses by `logits`, those of the layer's router if None.

    `stem` ends the names of the experts' tensors, `n_ff` is their width where it is not the file's.
    """
    blk = f"blk.{i}.ffn"
    n_used, width = p.n_expert_used[i], experts.width or p.n_embd
    if logits is None:
        logits = b.matmul(x, f"{blk}_gate_inp", p.n_expert)
    names = (f"blk.{i}.exp_probs_b.bias", f"blk.{i}.exp_probs_b")
    routes = b.route(
        logits,
        n_used,
        experts.scoring,
        bias=next((name for name in names if b.has(name)), None),
        normalised=experts.normalised,
        scale=experts.scale,
        groups=_groups(p),
    )
    weights = b.slice(routes, n_used, n_used)
    if experts.weigh_before:
        x = b.mix(x, weights, x.width)
    y = _run(p, b, x, routes, i, experts, stem, n_ff or p.n_ff_exp[i])
    if not experts.weigh_before:
        return b.mix(y, weights, width)
    total = b.slice(y, 0, width)
    for slot in range(1, n_used):
        total = b.add(total, b.slice(y, slot * width, width))
    return total


def _run(
    p: Params, b: ProgramBuilder, x: Value, routes: Value, i: int, experts: Experts, stem: str, n_ff: int
) -> Value:
    """Return what each slot's expert makes, one beside the other."""
    blk, n_used, width = f"blk.{i}.ffn", p.n_expert_used[i], experts.width or p.n_embd
    if not experts.use_scale:
        b.ignore("blk.*.ffn_*.scale")

    def product(value: Value, name: str, n_out: int, rows: tuple[int, int] | None = None) -> Value:
        alike = name != "down" and not experts.weigh_before
        return b.matmul_experts(
            value, routes, f"{blk}_{name}_{stem}", n_out, n_used, p.n_expert,
            shared=alike, use_scale=experts.use_scale, rows=rows,
        )  # fmt: skip

    if b.has(f"{blk}_gate_up_{stem}.weight"):
        gate = product(x, "gate_up", n_ff, (0, 2 * n_ff))
        up = product(x, "gate_up", n_ff, (n_ff, 2 * n_ff))
    else:
        up = product(x, "up", n_ff)
        if not b.has(f"{blk}_gate_{stem}.weight"):
            return product(b.activate(up, experts.activation), "down", width)
        gate = product(x, "gate", n_ff)
    limit = experts.limits[i] if experts.limits else 0.0
    return product(meet(b, gate, up, experts, limit, experts.offset), "down", width)


def _groups(p: Params) -> tuple[int, int]:
    n = p.integer("expert_group_count", 0, minimum=0)
    return (n, p.integer("expert_group_used_count")) if n > 1 else (1, 1)
