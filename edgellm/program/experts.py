"""Ops of mixtures: experts chosen row by row, and values mixed with coefficients of the row's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Scoring = Literal["softmax", "sigmoid", "chosen"]
"""How the router's logits become weights: over all experts, each for itself, or a softmax over the chosen ones."""


@dataclass(frozen=True, slots=True)
class Route:
    """Choose `n_used` experts for each row from the router's logits ``x``, ``[rows, n_expert]``.

    The scores are ``softmax(x)``, ``sigmoid(x)`` or, for ``chosen``, the logits themselves.  The experts of the
    largest ``score + bias`` are chosen, best first, and the lower index among equals.  With `n_groups`, experts lie in
    groups of equal size, and only those of the `n_groups_used` groups can be chosen whose two best sum highest.

    ``out`` is ``[rows, 2 * n_used]``: the chosen experts' numbers, then their weights.  A weight is the expert's
    score without the bias; ``chosen`` makes a softmax of the chosen ones' logits.  With `normalised` the weights are
    divided by their sum (of at least 2**-14), and at last all are multiplied by `scale`.
    """

    out: str
    x: str
    n_used: int
    scoring: Scoring
    bias: str | None = None
    normalised: bool = False
    scale: float = 1.0
    n_groups: int = 1
    n_groups_used: int = 1


@dataclass(frozen=True, slots=True)
class MatMulExperts:
    """``out[r, s] = (weight[e] @ x[r, s]) * scale[e] + bias[e]``, where ``e`` is the expert of slot ``s``.

    `routes` is what `Route` made; without it slot ``s`` uses matrix ``s`` in every row.  ``x`` is ``[rows, n_slots *
    n_in]``, or ``[rows, n_in]`` for all slots alike, and ``out`` is ``[rows, n_slots * n_out]``.  The weight is
    ``(n_in, n_all, n_expert)``, of which the rows ``first .. first + n_out - 1`` are used; the bias is ``(n_out,
    n_expert)`` and the scale ``(n_expert,)``.
    """

    out: str
    x: str
    routes: str | None
    weight: str
    n_slots: int
    bias: str | None = None
    scale: str | None = None
    first: int = 0


@dataclass(frozen=True, slots=True)
class Mix:
    """``out[r, i] = sum_j by[r, i, j] * x[r, j]`` over runs ``j`` of ``x``, each as wide as the runs ``i`` of ``out``.

    ``x`` is ``[rows, n_in * size]``, ``by`` is ``[rows, n_out * n_in]``, ``out`` is ``[rows, n_out * size]``.
    """

    out: str
    x: str
    by: str
    size: int
