from itertools import pairwise

import pytest

from edgellm.sampling.rng import fresh_seed, uniform


def splitmix64(state: int, count: int) -> list[int]:
    """The published generator, step by step."""
    numbers = []
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        z = state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        numbers.append(z ^ (z >> 31))
    return numbers


def test_numbers_are_those_of_splitmix64_started_at_the_hash_of_the_seed() -> None:
    # The reference output for this seed, as published with the algorithm.
    assert splitmix64(1234567, 2) == [6457827717110365317, 3203168211198807973]
    for seed in (0, 1, 1234567, 2**64 - 1):
        [start] = splitmix64(seed, 1)
        assert [uniform(seed, i) for i in range(20)] == [(n >> 11) / 2**53 for n in splitmix64(start, 20)]


@pytest.mark.parametrize("seed", [0, 1, 2**32, 2**64 - 1])
def test_numbers_are_spread_evenly(seed: int) -> None:
    numbers = [uniform(seed, i) for i in range(8000)]
    assert all(0 <= u < 1 for u in numbers)
    buckets = [0] * 16
    for u in numbers:
        buckets[int(u * 16)] += 1
    # Chi-square with 15 degrees of freedom: above 45 in fewer than 1 of 10,000 seeds.
    assert sum((n - 500) ** 2 / 500 for n in buckets) < 45
    mean = sum(numbers) / len(numbers)
    lag = sum((a - mean) * (b - mean) for a, b in pairwise(numbers)) / sum((a - mean) ** 2 for a in numbers)
    assert abs(lag) < 0.05


def test_neighbouring_seeds_do_not_share_numbers() -> None:
    numbers = {uniform(seed, i) for seed in range(100) for i in range(100)}
    assert len(numbers) == 10_000


def test_fresh_seeds_differ_and_fit_a_double() -> None:
    seeds = {fresh_seed() for _ in range(100)}
    assert len(seeds) == 100
    assert all(0 <= seed < 2**53 for seed in seeds)
