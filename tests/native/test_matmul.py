"""Matrix products: the error is that of the activations' 8 bits and of float32 sums, and no more."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from edgellm import dtypes
from edgellm.backends.base import Backend
from tests.support.native import (
    BLOCKS,
    FLOATS,
    HALVES,
    NOT_IN_GGUF_PY,
    TYPES,
    UNIT,
    Probe,
    values_of,
    vector,
    weight,
)

Doubles = npt.NDArray[np.float64]
ROWS = 20


def inputs(n_rows: int, n_in: int, seed: int = 7) -> npt.NDArray[np.float32]:
    """Return rows of very different sizes with outliers, a row of zeros and one of powers of two."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n_rows, n_in)) * np.exp(rng.uniform(-6, 6, (n_rows, 1)))
    x *= np.where(rng.random(x.shape) < 0.02, 50.0, 1.0)
    x[0] = 0.0
    x[-1] = 2.0 ** rng.integers(-20, 5, n_in)
    return x.astype(np.float32)


def quantized(x: npt.NDArray[np.float32]) -> Doubles:
    """Return activations as the kernels see them: runs of 16 share a scale, float32 arithmetic throughout."""
    runs = x.reshape(len(x), -1, 16)
    most = np.abs(runs).max(axis=2, keepdims=True)
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.where(most > 0, np.float32(127) / most, np.float32(0))
    scale = np.where(np.isfinite(inverse), most / np.float32(127), np.float32(0))
    q = np.rint(runs * np.where(np.isfinite(inverse), inverse, np.float32(0)))
    assert np.abs(q).max() <= 127
    return (q.astype(np.float64) * scale).reshape(x.shape)


def rounding(name: str, x: Doubles, w: Doubles, low: Doubles) -> Doubles:
    """Bound what float32 sums may add to the exact product of `x` and `w`.

    A sum of n terms, each rounded a few times, is off by at most n + a few units of the sum of their sizes.
    A block type with mins splits each weight in two terms; together these are at most 2 * |low| larger.
    """
    n = x.shape[1] / 16 + 6 if name in FLOATS else x.shape[1] / 8 + 8
    return np.asarray((n * UNIT) * (np.abs(x) @ (np.abs(w) + 2.0 * np.abs(low)).T) + 1e-37)


def lows(name: str, w: Doubles) -> Doubles:
    """Return the size that the min of each weight's block can have, from the outside: the largest of its weights.

    A min is the value of a stored zero, which may not occur in the block.  In a run of 16 that share scale and
    min, it is at most as far from them as they may be from each other: the widest types have 32 steps.
    """
    if name not in ("Q4_1", "Q5_1", "Q2_K", "Q4_K", "Q5_K"):
        return np.zeros_like(w)
    runs = w.reshape(len(w), -1, 16)
    return np.asarray(np.repeat(np.abs(runs).max(axis=2) + 32 * np.ptp(runs, axis=2), 16, axis=1))


def probe(name: str, n_in: int, n_out: int, n_rows: int = ROWS, **extra: npt.ArrayLike) -> Probe:
    weights = {"m.weight": weight(name, n_in, n_out, 3)}
    weights |= {f"m.{part}": vector(values) for part, values in extra.items()}
    return Probe.of([inputs(n_rows, n_in)], lambda b, v: b.matmul(v[0], "m", n_out), weights)


def shapes(name: str) -> list[tuple[int, int]]:
    if name in FLOATS:
        return [(1, 17), (7, 15), (16, 16), (17, 33), (100, 1), (256, 5)]
    if dtypes.by_name(name).block == 32:
        return [(32, 17), (64, 15), (96, 16), (288, 33), (352, 1)]
    return [(256, 17), (512, 15), (256, 16), (768, 33), (2560, 1)]


CASES = [(name, *shape) for name in TYPES for shape in shapes(name)]


@pytest.mark.parametrize(("name", "n_in", "n_out"), CASES)
def test_products_are_those_of_the_reference(
    native: Backend, reference: Backend, name: str, n_in: int, n_out: int
) -> None:
    program = probe(name, n_in, n_out)
    x, w = inputs(ROWS, n_in), values_of(program.weights["m.weight"])
    found = program.run(native).astype(np.float64)
    if name in NOT_IN_GGUF_PY:
        program = Probe.of([x], lambda b, v: b.matmul(v[0], "m", n_out), {"m.weight": vector(w)})
    expected = program.run(reference).astype(np.float64)
    seen = x.astype(np.float64) if name in FLOATS else quantized(x)
    allowed = rounding(name, seen, w, lows(name, w))

    # Against the product of what the kernels see nothing but float32 sums may be wrong.
    assert (np.abs(found - seen @ w.T) <= allowed).all()

    # Against the reference each input may besides be half a step off: its run's largest value / 127 / 2.
    allowed = allowed + UNIT * np.abs(expected)
    if name in BLOCKS:
        step = np.abs(x).reshape(ROWS, -1, 16).max(axis=2).astype(np.float64) / 127.0
        allowed += np.repeat(step, 16, axis=1) * (0.5 + 127 * 4 * UNIT) @ np.abs(w).T
    assert (np.abs(found - expected) <= allowed).all()
    assert np.abs(expected[1:]).min(axis=1).max() > 0.0


@pytest.mark.parametrize("name", ["F16", "Q4_K", "Q8_0", "Q6_K"])
def test_scale_and_bias_take_part(native: Backend, reference: Backend, name: str) -> None:
    rng = np.random.default_rng(2)
    bias = rng.standard_normal(33)
    plain = probe(name, 256, 33)
    both = probe(name, 256, 33, bias=bias, scale=[0.75])
    product = plain.run(native)
    expected = product * np.float32(0.75) + bias.astype(np.float32)
    np.testing.assert_array_equal(both.run(native), expected)
    weights = both.weights
    summed = Probe.of([inputs(ROWS, 256)], lambda b, v: b.matmul(v[0], "m", 33, scale_use="sum"), weights)
    found, wanted = summed.run(native).astype(np.float64), summed.run(reference).astype(np.float64)
    shift = np.abs(product.astype(np.float64) - plain.run(reference)) * 0.75
    assert (np.abs(found - wanted) <= shift + 4 * UNIT * (np.abs(wanted) + np.abs(product) + np.abs(bias))).all()
    assert not np.array_equal(found, both.run(native))


@pytest.mark.parametrize("name", TYPES)
def test_every_number_of_rows_gives_the_rows_of_one(native: Backend, name: str) -> None:
    program = probe(name, 256, 33)
    whole = program.run(native)
    executable = program.compile(native, n_tokens=ROWS)
    for n in range(1, ROWS + 1):
        np.testing.assert_array_equal(program.run(native, range(n)), whole[:n])
    executable.close()


@pytest.mark.parametrize("name", TYPES)
def test_embedded_rows_are_the_dequantized_ones(native: Backend, name: str) -> None:
    n_vocab, n_in = 300, 256
    table = weight(name, n_in, n_vocab, 11)
    program = Probe.of([np.zeros((n_vocab, 1), np.float32)], lambda b, v: b.embed("e", n_in, n_vocab), {"e": table})
    tokens = [0, 299, 17, 17, 1]
    np.testing.assert_array_equal(program.run(native, tokens), values_of(table)[tokens])


@pytest.mark.parametrize("name", BLOCKS)
def test_tiny_and_huge_activations(native: Backend, name: str) -> None:
    n_in = 256
    w = weight(name, n_in, 17, 3)
    rng = np.random.default_rng(1)
    # A run's integer sum, up to 16 * 127 * 127, times its scale must fit in float32: inputs up to 1e35 do.
    sizes = np.array([1e-45, 1e-40, 1e-38, 3e-37, 1e-36, 1e-30, 1.0, 1e30, 1e35])
    x = (rng.uniform(-1, 1, (len(sizes), n_in)) * sizes[:, None]).astype(np.float32)
    program = Probe.of([x], lambda b, v: b.matmul(v[0], "m", 17), {"m.weight": w})
    found = program.run(native).astype(np.float64)
    assert np.isfinite(found).all()
    exact = values_of(w)
    bound = np.abs(exact).sum(axis=1) * np.abs(x).max(axis=1)[:, None]
    # Below 127 / FLT_MAX a scale has no inverse: such activations may count as zero, but as nothing else.
    allowed = bound * np.where(sizes < 1e-36, 1.0, 0.5 / 127 * 1.001)[:, None] + 1e-44
    assert (np.abs(found - x.astype(np.float64) @ exact.T) <= allowed).all()


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_a_number_spoils_its_row_and_no_other(native: Backend, name: str, bad: float) -> None:
    clean = inputs(ROWS, 256)
    for column in (0, 15, 16, 255):
        x = clean.copy()
        x[5, column] = bad
        w = {"m.weight": weight(name, 256, 33, 3)}
        found = Probe.of([x], lambda b, v: b.matmul(v[0], "m", 33), w).run(native)
        expected = Probe.of([clean], lambda b, v: b.matmul(v[0], "m", 33), w).run(native)
        assert not np.isfinite(found[5]).any()
        np.testing.assert_array_equal(np.delete(found, 5, 0), np.delete(expected, 5, 0))


@pytest.mark.parametrize("name", sorted(HALVES))
def test_a_scale_that_is_not_a_number_spoils_its_output_and_no_other(native: Backend, name: str) -> None:
    clean = weight(name, 512, 33, 3)
    kind = clean.dtype
    for at in HALVES[name]:
        for block in range(0, 512 // kind.block, max(1, 512 // kind.block - 1)):
            rows = np.frombuffer(clean.data, np.uint8).reshape(33, -1).copy()
            start = block * kind.nbytes + at
            rows[20, start : start + 2] = np.array([np.nan], np.float16).view(np.uint8)
            spoiled = type(clean)(kind, clean.shape, memoryview(rows.ravel()))
            for n_rows in (1, 3, 4, ROWS):
                x = inputs(ROWS, 512)[-n_rows:]
                found, expected = (
                    Probe.of([x], lambda b, v: b.matmul(v[0], "m", 33), {"m.weight": m}).run(native)
                    for m in (spoiled, clean)
                )
                assert np.isnan(found[:, 20]).all()
                np.testing.assert_array_equal(np.delete(found, 20, 1), np.delete(expected, 20, 1))
