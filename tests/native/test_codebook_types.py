"""Types with codebooks, odd scales or odd block sizes: every entry, scale and number of blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgellm import dtypes
from edgellm.backends.base import Backend, Weight
from tests.support.native import Floats, Probe, available, dequantize, random_rows, values_of, weight

Bytes = npt.NDArray[np.uint8]

FIRST_INDEX = {"IQ1_S": 2, "IQ1_M": 0, "IQ2_XXS": 2, "IQ2_S": 2, "IQ3_XXS": 2, "IQ3_S": 2}
"""Where a block keeps the low byte of its first index."""
HIGH_BITS = {"IQ1_S": (34, 3), "IQ1_M": (32, 3), "IQ2_S": (66, 2), "IQ3_S": (66, 1)}
"""The byte whose lowest bits are the high ones of the first index, and how many."""

SHAPES = [("NVFP4", n) for n in (64, 192, 320)] + [("Q2_0", n) for n in (64, 192, 576)]
SHAPES += [("Q1_0", n) for n in (128, 384)]
SHAPES += [(name, n) for name in ("IQ4_NL", "MXFP4") for n in (32, 160, 288)]
SHAPES += [(name, 512) for name in ("IQ4_XS", "TQ1_0", "TQ2_0", "IQ2_XS", *FIRST_INDEX)]


def dequantized(core: Any, isa: str, name: str, rows: Bytes) -> Floats:
    kind = dtypes.by_name(name)
    out = np.empty((len(rows), rows.shape[1] // kind.nbytes * kind.block), np.float32)
    core.dequantize(isa, kind.id, rows, rows.shape[1], out)
    return out


def same_bits(found: Floats, expected: Floats) -> None:
    """Assert that both are equal, down to the signs of zeros."""
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("name", FIRST_INDEX)
def test_every_entry_of_the_codebook(core: Any, isa: str, name: str) -> None:
    at, (high, n_high) = FIRST_INDEX[name], HIGH_BITS.get(name, (0, 0))
    index = np.arange(256 << n_high)
    rows = np.repeat(random_rows(name, 256, 1, 4), len(index), axis=0)
    rows[:, at] = index & 255
    if n_high:
        rows[:, high] = (rows[:, high] >> n_high << n_high) | (index >> 8)
    found = dequantized(core, isa, name, rows)
    same_bits(found, dequantize(name, rows))
    width = 4 if name.startswith("IQ3") else 8
    assert len(np.unique(found[:, :width], axis=0)) == len(index)
    assert (found[:, width:] == found[0, width:]).all()


def test_every_index_and_every_pattern_of_signs_of_iq2_xs(core: Any, isa: str) -> None:
    codes = np.arange(1 << 16, dtype=np.uint16).reshape(-1, 32)
    rows = np.repeat(random_rows("IQ2_XS", 256, 1, 4), len(codes), axis=0)
    rows[:, 2:66] = codes.view(np.uint8)
    found = dequantized(core, isa, "IQ2_XS", rows)
    same_bits(found, dequantize("IQ2_XS", rows))
    scaled = found[:, :8] / np.abs(found[:, :8]).min(axis=1, keepdims=True)
    assert len(np.unique(scaled, axis=0)) > 1000


@pytest.mark.parametrize(("name", "at"), [("IQ2_XXS", 6), ("IQ3_XXS", 66)])
def test_an_even_number_of_minuses(core: Any, isa: str, name: str, at: int) -> None:
    # 28 bits are four times seven signs; each eighth sign follows from the seven.
    words = np.random.default_rng(1).integers(0, 1 << 32, 2000, np.uint32)
    words[:128] = np.arange(128) << 21
    rows = np.repeat(random_rows(name, 256, 1, 4), len(words), axis=0)
    rows[:, at : at + 4] = words[:, None].view(np.uint8)
    found = dequantized(core, isa, name, rows)
    same_bits(found, dequantize(name, rows))
    positive = np.signbit(found[0, 0]) == bool(words[0] & 1)
    minuses = (np.signbit(found[:, :32].reshape(-1, 4, 8)) == positive).sum(axis=2)
    assert (minuses % 2 == 0).all()
    assert set(minuses.ravel()) == {0, 2, 4, 6, 8}


@pytest.mark.parametrize(("name", "n_scales"), [("MXFP4", 1), ("NVFP4", 4)])
def test_every_scale_of_eight_bits(core: Any, isa: str, name: str, n_scales: int) -> None:
    kind = dtypes.by_name(name)
    scales = np.arange(256, dtype=np.uint8)
    rows = np.random.default_rng(2).integers(0, 256, (256, kind.nbytes), np.uint8)
    for i in range(n_scales):
        rows[:, i] = np.roll(scales, 64 * i)
    with np.errstate(over="ignore"):
        expected = dequantize(name, rows)
    same_bits(dequantized(core, isa, name, rows), expected)
    tiny = np.abs(expected[(expected != 0) & np.isfinite(expected)]).min()
    assert tiny == (2.0**-128 if name == "MXFP4" else 2.0**-10)


def test_every_scale_of_iq1_m_is_put_together_from_its_four_parts(core: Any, isa: str) -> None:
    halves = np.arange(1 << 16, dtype=np.uint16)
    halves = halves[np.isfinite(halves.view(np.float16))]
    rows = np.repeat(random_rows("IQ1_M", 256, 1, 4), len(halves), axis=0)
    for i in range(4):
        rows[:, 49 + 2 * i] = (rows[:, 49 + 2 * i] & 15) | ((halves >> (4 * i) & 15) << 4)
    found = dequantized(core, isa, "IQ1_M", rows)
    same_bits(found, dequantize("IQ1_M", rows))
    assert (np.sign(found[:, 0]) == np.sign(found[1, 0]) * np.sign(halves.view(np.float16))).all()


def product(name: str, n_in: int, n_out: int, x: Floats, backend: Backend, threads: int = 1) -> Floats:
    weights = {"m.weight": weight(name, n_in, n_out, 9)}
    return Probe.of([x], lambda b, v: b.matmul(v[0], "m", n_out), weights).run(backend, threads=threads)


@pytest.mark.parametrize(("name", "n_in"), SHAPES)
def test_products_do_not_depend_on_who_computes_them(core: Any, name: str, n_in: int) -> None:
    from edgellm.backends.native import NativeBackend

    x = np.random.default_rng(3).standard_normal((17, n_in)).astype(np.float32)
    results = [product(name, n_in, 37, x, NativeBackend(isa), threads) for isa in available() for threads in (1, 3)]
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])
    for n in (1, 2, 3, 4, 5, 13):
        for isa in available():
            np.testing.assert_array_equal(product(name, n_in, 37, x[:n], NativeBackend(isa)), results[0][:n])
    w = values_of(weight(name, n_in, 37, 9))
    # Rounding the activations to 127 steps of their run's largest value, here below five.
    assert (np.abs(results[0] - x.astype(np.float64) @ w.T) <= 5 / 127 * np.abs(w).sum(axis=1) * 0.51).all()
    assert np.std(results[0]) > 0.0


@pytest.mark.parametrize(("name", "n_in"), SHAPES)
@pytest.mark.parametrize("low", [True, False])
def test_equal_codes_meet_the_largest_activations(native: Backend, name: str, n_in: int, low: bool) -> None:
    # Sums of 127 * 127 are the most that pairs of products reach in 16 bits.
    clean = weight(name, n_in, 16, 9)
    rows = np.frombuffer(clean.data, np.uint8).reshape(16, -1, clean.dtype.nbytes).copy()
    start = {"TQ1_0": 0, "TQ2_0": 0, "IQ1_M": 0, "MXFP4": 1, "NVFP4": 4, "IQ4_XS": 8}.get(name, 2)
    end = {"TQ1_0": 52, "TQ2_0": 64, "IQ1_M": 48}.get(name, clean.dtype.nbytes)
    lowest = 0x77 if name.endswith("FP4") else 0x00  # whose zero is a zero
    rows[..., start:end] = lowest if low else 0xFF
    matrix = Weight(clean.dtype, clean.shape, memoryview(rows.ravel()))
    w = values_of(matrix)
    for n_rows in (1, 6):
        for sign in (1.0, -1.0):
            x = np.full((n_rows, n_in), sign * 127.0, np.float32)
            program = Probe.of([x], lambda b, v: b.matmul(v[0], "m", 16), {"m.weight": matrix})
            expected = sign * 127.0 * w.sum(axis=1)
            slack = 1e-5 * 127.0 * np.abs(w).sum(axis=1)
            assert (np.abs(program.run(native).astype(np.float64) - expected) <= slack).all()
            assert np.abs(expected).min() > 0.0
