"""Rotary position embeddings as files describe them: base, scaling, YaRN.

YaRN: Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models", 2023.
"""

from __future__ import annotations

import math
from dataclasses import replace

from edgellm.architectures.params import Params
from edgellm.errors import ModelFormatError, UnsupportedModelError
from edgellm.program import ProgramBuilder, RopeSpec
from edgellm.program.ops import RopeStyle

LONG, SHORT = "rope_factors_long.weight", "rope_factors_short.weight"
"""Per-pair divisors for contexts beyond the original one, and for those within."""


def rope_spec(
    p: Params,
    style: RopeStyle,
    *,
    factors: str | None = None,
    base: float | None = None,
    n_rot: int | None = None,
    offset: int = 0,
    magnitude: float | None = None,
) -> RopeSpec:
    """Return the rotation that the file's ``rope.*`` keys ask for.

    `factors` names a tensor of per-pair divisors to use where the file has it; the other parameters stand for the
    keys where a family has its own.
    """
    spec = _scaled(p, style, factors, base or _base(p, "rope.freq_base", 10000.0), n_rot or _n_rot(p))
    return replace(spec, offset=offset, magnitude=spec.magnitude if magnitude is None else magnitude)


def long_or_short(p: Params, b: ProgramBuilder) -> str | None:
    """Return the tensor of divisors that suits the context, accepting the other one; None where there are none."""
    b.ignore(LONG, SHORT)
    original = p.integer("rope.scaling.original_context_length", p.n_ctx_train)
    wanted = LONG if p.n_ctx > original else SHORT
    return wanted if b.has(wanted) else None


def _scaled(p: Params, style: RopeStyle, factors: str | None, base: float, n_rot: int) -> RopeSpec:
    plain = _frequencies(base, n_rot)
    factors = factors if factors in p.tensors else None
    attn_factor = p.number("rope.scaling.attn_factor", 1.0)
    stretch = _stretch(p)
    kind = p.text("rope.scaling.type", "linear")
    if kind == "none":
        return RopeSpec(plain, style, factors, attn_factor)
    if kind == "linear" or (kind == "longrope" and factors in (LONG, SHORT)):
        return RopeSpec(tuple(f / stretch for f in plain), style, factors, attn_factor)
    if kind == "yarn":
        keep = _yarn_keep(p, base, n_rot)
        mixed = tuple(f * ((1.0 - k) / stretch + k) for f, k in zip(plain, keep, strict=True))
        return RopeSpec(mixed, style, factors, attn_factor * _yarn_magnitude(p, stretch))
    raise UnsupportedModelError(f"{p.key('rope.scaling.type')} = {kind[:60]!r} is not supported")


def local_rope_spec(
    p: Params,
    style: RopeStyle,
    default_base: float,
    *,
    n_rot: int | None = None,
    scaled: bool = False,
    own: bool = True,
    factors: str | None = None,
    offset: int = 0,
) -> RopeSpec:
    """Return the rotation of layers with a sliding window: `scaled` as the others or not at all.

    Their base has a key, unless they have no `own`.
    """
    base = _base(p, "rope.freq_base_swa", default_base) if own else default_base
    if scaled:
        return rope_spec(p, style, base=base, n_rot=n_rot, factors=factors, offset=offset)
    return RopeSpec(_frequencies(base, n_rot or _n_rot(p)), style, offset=offset)


def global_base(p: Params) -> float:
    """Return the base of the layers without a window."""
    return _base(p, "rope.freq_base", 10000.0)


def _base(p: Params, name: str, default: float) -> float:
    base = p.number(name, default)
    if base <= 1.0:
        raise ModelFormatError(f"{p.key(name)} = {base}: must be greater than 1")
    return base


def _n_rot(p: Params) -> int:
    name = "rope.dimension_count"
    n_rot = p.integer(name, p.head_dim)
    if n_rot > p.head_dim or n_rot % 2:
        raise ModelFormatError(f"{p.key(name)} = {n_rot}: must be even and at most the head's width, {p.head_dim}")
    return n_rot


def _frequencies(base: float, n_rot: int) -> tuple[float, ...]:
    return tuple(base ** (-2.0 * i / n_rot) for i in range(n_rot // 2))


def _stretch(p: Params) -> float:
    """How many times longer the context has been made; older files call it scale_linear."""
    name = "rope.scaling.factor"
    if p.key(name) not in p.metadata:
        name = "rope.scale_linear"
    return p.number(name, 0.0) or 1.0


def _yarn_keep(p: Params, base: float, n_rot: int) -> tuple[float, ...]:
    """Per pair: 1 where it turns so often that it keeps its frequency, 0 where it is stretched in full."""
    strength = p.number("rope.scaling.yarn_ext_factor", -1.0, minimum=-math.inf)
    strength = 1.0 if strength < 0.0 else strength
    n_ctx = p.integer("rope.scaling.original_context_length", 0, minimum=0) or p.n_ctx_train

    def pair_of(turns: float) -> float:
        return n_rot * math.log(n_ctx / (turns * 2.0 * math.pi)) / (2.0 * math.log(base))

    low = max(0.0, math.floor(pair_of(_turns(p, "rope.scaling.yarn_beta_fast", 32.0))))
    high = min(n_rot - 1.0, math.ceil(pair_of(_turns(p, "rope.scaling.yarn_beta_slow", 1.0))))
    span = max(0.001, high - low)
    return tuple(strength * (1.0 - min(1.0, max(0.0, (i - low) / span))) for i in range(n_rot // 2))


def _turns(p: Params, name: str, default: float) -> float:
    turns = p.number(name, default)
    if turns == 0.0:
        raise ModelFormatError(f"{p.key(name)} = 0: must be greater than 0")
    return turns


def _yarn_magnitude(p: Params, stretch: float) -> float:
    """Return the paper's attention factor; models that scale their scores elsewhere divide it out again."""
    growth = math.log(stretch) * 0.1 if stretch > 1.0 else 0.0
    multiplier = p.number("rope.scaling.yarn_log_multiplier", 0.0)
    return (1.0 + growth) / (1.0 + multiplier * growth)
