"""Random numbers whose whole state is two integers: a seed and how many were drawn.

The n-th number is a hash of (seed, n), so it is the same on every platform and under every NumPy, and a saved
sequence resumes without replaying its draws. The hash is splitmix64's finalizer (Steele, Lea, Flood: Fast
Splittable Pseudorandom Number Generators, 2014), applied to the seed as well, so that neighbouring seeds do not
give shifted copies of one sequence.
"""

import os

_MASK = 2**64 - 1
_GAMMA = 0x9E3779B97F4A7C15


def _mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def uniform(seed: int, index: int, stream: int = 0) -> float:
    """The `index`-th number of the sequence `seed`: a multiple of 2**-53 in [0, 1).

    Streams are independent sequences of one seed, for choices that must not use up each other's numbers.
    """
    start = _mix((seed + _GAMMA) & _MASK)
    for _ in range(stream):
        start = _mix((start + _GAMMA) & _MASK)
    return float(_mix((start + (index + 1) * _GAMMA) & _MASK) >> 11) * 2.0**-53


def fresh_seed() -> int:
    """An unpredictable seed below 2**48, so that it survives JSON readers that know only doubles."""
    return int.from_bytes(os.urandom(6), "little")
