"""The slopes of ALiBi, one per query head."""

from __future__ import annotations


def alibi_slopes(n_head: int, bias: float) -> tuple[float, ...]:
    """Return by how much each head's scores fall per position; all zero without a `bias`.

    The slopes are powers of ``2 ** (-bias / n)``, where n is the largest power of two up to `n_head`; the heads
    beyond it take the odd powers of the root.  Press et al., "Train Short, Test Long", 2021.
    """
    if not bias:
        return (0.0,) * n_head
    whole = 1 << (n_head.bit_length() - 1)
    first, between = 2.0 ** (-bias / whole), 2.0 ** (-bias / 2.0 / whole)
    return tuple(first ** (h + 1) if h < whole else between ** (2 * (h - whole) + 1) for h in range(n_head))
