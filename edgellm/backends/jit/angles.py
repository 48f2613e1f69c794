"""Cosine and sine of positions, exact to a unit of float64 far out; as csrc/trig.c."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]

_HALF_PI = (float.fromhex("0x1.921fb544p+0"), float.fromhex("0x1.0b4611a6p-34"), float.fromhex("0x1.3198a2e037073p-69"))
"""Pi/2 in parts of 31, 32 and 53 bits: products with a quotient of 22 bits are exact."""
_TWO_BY_PI = float.fromhex("0x1.45f306dc9c883p-1")

_SINE = (-1.0 / 1307674368000.0, 1.0 / 6227020800.0, -1.0 / 39916800.0, 1.0 / 362880.0, -1.0 / 5040.0, 1.0 / 120.0)
_COSINE = (1.0 / 20922789888000.0, -1.0 / 87178291200.0, 1.0 / 479001600.0, -1.0 / 3628800.0, 1.0 / 40320.0)


def _series(z: Doubles, *factors: float) -> Doubles:
    total = np.full_like(z, factors[0])
    for factor in factors[1:]:
        total = total * z + factor
    return total


def turns(positions: npt.NDArray[np.integer], frequencies: Doubles, magnitude: float) -> npt.NDArray[np.float32]:
    """Return cosine and sine, interleaved and times `magnitude`, of each position and frequency: ``[n, 2 * pairs]``."""
    x = positions.astype(np.float64)[:, None] * frequencies
    with np.errstate(invalid="ignore"):
        n = np.rint(x * _TWO_BY_PI)
        lost = ~(np.abs(n) < 2.0**52)  # Also what is not finite.
        r = ((x - n * _HALF_PI[0]) - n * _HALF_PI[1]) - n * _HALF_PI[2]
        z = r * r
        sine = r + r * z * _series(z, *_SINE, -1.0 / 6.0)
        cosine = 1.0 + z * _series(z, *_COSINE, -1.0 / 720.0, 1.0 / 24.0, -0.5)
        sine[lost] = cosine[lost] = np.nan
        quarter = np.where(lost, 0.0, n).astype(np.int64) & 3
    swap = quarter & 1 == 1
    sine, cosine = np.where(swap, cosine, sine), np.where(swap, sine, cosine)
    sine = np.where(quarter >= 2, -sine, sine)
    cosine = np.where((quarter == 1) | (quarter == 2), -cosine, cosine)
    found = np.empty((len(x), 2 * x.shape[1]), np.float32)
    found[:, 0::2] = cosine.astype(np.float32) * np.float32(magnitude)
    found[:, 1::2] = sine.astype(np.float32) * np.float32(magnitude)
    return found
