"""Ops on single rows that have no kernel in C: functions that every compiled backend calls by their address.

A function gets the addresses of its parameters and of the first of ``n_rows`` rows of ``n_a``, ``n_b`` and ``n_out``
floats; csrc/edgellm.h says what `edge_rows_fn` must and must not do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edgellm.backends.jit.compiling import inner
from edgellm.backends.jit.intrinsics import float_at
from edgellm.backends.jit.rows import f_exp
from edgellm.backends.jit.vectors import (
    f_abs,
    f_add,
    f_fma,
    f_if_less,
    f_load_n,
    f_min,
    f_mul,
    f_set,
    f_store_n,
    f_sub,
    f_zero,
)


@dataclass(frozen=True, slots=True)
class RowFunction:
    """A function of rows, still to be compiled."""

    python: Callable[[int, int, int, int, int, int, int, int], None]
    n_params: int
    """How many floats it reads of its parameters."""


@inner
def _exp_rest(x: Any) -> Any:
    """Return e^x - 1 - x; near zero, where that would cancel, the series from the square on."""
    p = f_set(1.0 / 3628800.0)
    p = f_fma(p, x, f_set(1.0 / 362880.0))
    p = f_fma(p, x, f_set(1.0 / 40320.0))
    p = f_fma(p, x, f_set(1.0 / 5040.0))
    p = f_fma(p, x, f_set(1.0 / 720.0))
    p = f_fma(p, x, f_set(1.0 / 120.0))
    p = f_fma(p, x, f_set(1.0 / 24.0))
    p = f_fma(p, x, f_set(1.0 / 6.0))
    p = f_fma(p, x, f_set(0.5))
    near = f_mul(f_mul(x, x), p)
    return f_if_less(f_abs(x), f_set(0.5), near, f_sub(f_sub(f_exp(x), f_set(1.0)), x))


def _xielu(params: int, a: int, b: int, out: int, n_rows: int, n_a: int, n_b: int, n_out: int) -> None:
    """See `edgellm.program.ops.Xielu`; the parameters are alpha_p, alpha_n, beta and eps."""
    if n_a != n_out:
        return
    alpha_p, alpha_n = f_set(float_at(params, 0)), f_set(float_at(params, 1))
    beta, eps = f_set(float_at(params, 2)), f_set(float_at(params, 3))
    for i in range(0, n_rows * n_out, 16):
        left = min(n_rows * n_out - i, 16)
        x = f_load_n(a + 4 * i, left)
        bounded = f_min(x, eps)
        above = f_mul(f_mul(alpha_p, x), x)
        below = f_mul(f_add(_exp_rest(bounded), f_sub(bounded, x)), alpha_n)
        y = f_fma(beta, x, f_if_less(f_zero(), x, above, below))
        f_store_n(out + 4 * i, y, left)


FUNCTIONS = {"xielu": RowFunction(_xielu, 4)}
"""By the names that `Lowered.calls` has."""
