"""The tables of tensor types agree, and every instruction set reads their bytes as gguf-py does."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgellm import dtypes
from edgellm.backends import lowering
from edgellm.backends.native import TYPES as NATIVE_TYPES
from tests.support import native
from tests.support.native import HALVES, TYPES

EXTREME = np.array(
    [0.0, -0.0, 1.0, -1.0, 6e-8, -6e-8, 6.1e-5, -6e-5, 65504.0, -65504.0, np.inf, -np.inf, np.nan], np.float16
)
"""Halves that rounding, subnormals and infinities go wrong with."""


def dequantized(core: Any, isa: str, name: str, rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    kind = dtypes.by_name(name)
    out = np.empty((len(rows), rows.shape[1] // kind.nbytes * kind.block), np.float32)
    core.dequantize(isa, kind.id, rows, rows.shape[1], out)
    return out


def accepts(core: Any, isa: str, type_id: int, n: int, row_bytes: int) -> bool:
    out = np.empty((1, n), np.float32)
    try:
        core.dequantize(isa, type_id, np.zeros(row_bytes, np.uint8), row_bytes, out)
    except ValueError:
        return False
    return True


def test_the_types_with_kernels_are_those_the_backend_lists(core: Any, isa: str) -> None:
    sizes = {kind.id: kind for kind in dtypes.DTYPES}
    found = set()
    for type_id in range(-1, 64):
        kind = sizes.get(type_id)
        if kind is not None and accepts(core, isa, type_id, kind.block, kind.nbytes):
            found.add(kind.name)
        elif kind is None:
            assert not any(accepts(core, isa, type_id, n, b) for n in (1, 32, 256) for b in range(1, 300)), type_id
    assert found == NATIVE_TYPES
    assert found == set(TYPES)


@pytest.mark.parametrize("name", TYPES)
def test_block_sizes_are_those_of_the_table(core: Any, isa: str, name: str) -> None:
    kind = dtypes.by_name(name)
    fitting = {b for b in range(1, 600) if accepts(core, isa, kind.id, kind.block, b)}
    assert fitting == {kind.nbytes}
    assert accepts(core, isa, kind.id, 3 * kind.block, 3 * kind.nbytes)
    if kind.block > 1:
        assert not accepts(core, isa, kind.id, kind.block - 1, kind.nbytes)
        assert not accepts(core, isa, kind.id, kind.block + 1, kind.nbytes)


def test_structures_have_the_size_that_lowering_writes(core: Any) -> None:
    assert lowering.OP.itemsize == core.OP_BYTES
    assert lowering.STATE.itemsize == core.STATE_BYTES


@pytest.mark.parametrize("name", TYPES)
def test_random_bytes_mean_what_gguf_py_says(core: Any, isa: str, name: str) -> None:
    kind = dtypes.by_name(name)
    rng = np.random.default_rng(kind.id)
    for n_blocks in (1, 2, 3, 9, 17):
        rows = rng.integers(0, 256, (40, n_blocks * kind.nbytes), np.uint8)
        np.testing.assert_array_equal(dequantized(core, isa, name, rows), _expected(name, rows))


@pytest.mark.parametrize("name", sorted(HALVES))
def test_extreme_scales_mean_what_gguf_py_says(core: Any, isa: str, name: str) -> None:
    kind = dtypes.by_name(name)
    rng = np.random.default_rng(kind.id)
    rows = rng.integers(0, 256, (len(EXTREME) ** 2, kind.nbytes), np.uint8)
    pairs = np.stack(np.meshgrid(EXTREME, EXTREME), axis=-1).reshape(-1, 2)
    for column, at in enumerate(HALVES[name]):
        rows[:, at : at + 2] = pairs[:, column, None].copy().view(np.uint8)
    found, expected = dequantized(core, isa, name, rows), _expected(name, rows)
    np.testing.assert_array_equal(found, expected)
    assert np.isnan(expected).any()
    assert np.isfinite(expected).any()


@pytest.mark.parametrize("name", ["F16", "BF16"])
def test_every_half_means_what_gguf_py_says(core: Any, isa: str, name: str) -> None:
    rows = np.arange(1 << 16, dtype=np.uint16).view(np.uint8).reshape(64, -1)
    found, expected = dequantized(core, isa, name, rows), _expected(name, rows)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found[expected == 0.0]), np.signbit(expected[expected == 0.0]))


@pytest.mark.parametrize("name", TYPES)
def test_all_bytes_of_a_row_count(core: Any, isa: str, name: str) -> None:
    # Catches a test that compares constants: flipping any byte of a block must show.
    row = native.random_rows(name, max(256, 2 * dtypes.by_name(name).block), 1, 5)
    before = dequantized(core, isa, name, row)
    for at in range(row.shape[1]):
        changed = row.copy()
        changed[0, at] ^= 0x55
        assert not np.array_equal(dequantized(core, isa, name, changed), before, equal_nan=True), at


def _expected(name: str, rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    with np.errstate(all="ignore"):
        return native.dequantize(name, rows)
