"""Matrices of more than 2³¹ bytes: what lies beyond is found."""

from __future__ import annotations

import numpy as np
import pytest

from edgellm import dtypes
from edgellm.backends.base import Backend, Weight
from edgellm.backends.native import NativeBackend
from edgellm.program import ProgramBuilder
from edgellm.program.program import Value
from tests.support.native import Probe, random_rows

N_IN = 4096


def mostly_zeros(name: str, n_out: int, last: int) -> tuple[Weight, memoryview]:
    """Return a matrix of n_out rows, the last few of them not zero, and these; zeros take no memory until written."""
    rows = random_rows(name, N_IN, last, 3)
    data = np.zeros(n_out * rows.shape[1], np.uint8)
    assert data.size > 2**31 + rows.size
    data[-rows.size :] = rows.ravel()
    return Weight(dtypes.by_name(name), (N_IN, n_out), memoryview(data)), memoryview(rows.ravel())


def inputs(n: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.random.default_rng(8).standard_normal((n, N_IN)).astype(np.float32)


@pytest.mark.parametrize("name", ["F32", "Q8_0"])
@pytest.mark.parametrize("n_rows", [1, 3])
def test_the_last_rows_of_a_huge_matrix(isa: str, name: str, n_rows: int) -> None:
    last = 40
    n_out = 2**31 // dtypes.by_name(name).row_bytes(N_IN) + 100
    matrix, rows = mostly_zeros(name, n_out, last)
    backend: Backend = NativeBackend(isa)

    def end(p: ProgramBuilder, v: list[Value]) -> Value:
        return p.slice(p.matmul(v[0], "m", n_out), n_out - last, last)

    found = Probe.of([inputs(n_rows)], end, {"m.weight": matrix}).run(backend, threads=2)
    small = {"m.weight": Weight(matrix.dtype, (N_IN, last), rows)}
    expected = Probe.of([inputs(n_rows)], lambda p, v: p.matmul(v[0], "m", last), small).run(backend)
    np.testing.assert_array_equal(found, expected)
    assert np.abs(found).min() > 0.0


@pytest.mark.parametrize("name", ["F32", "Q8_0"])
def test_the_last_expert_of_a_huge_stack(isa: str, name: str) -> None:
    n_out = 64
    n_expert = 2**31 // (dtypes.by_name(name).row_bytes(N_IN) * n_out) + 2
    matrix, rows = mostly_zeros(name, n_expert * n_out, n_out)
    stack = Weight(matrix.dtype, (N_IN, n_out, n_expert), matrix.data)
    chosen = np.zeros((2, n_expert), np.float32)
    chosen[:, -1] = 5.0
    backend: Backend = NativeBackend(isa)

    def make(p: ProgramBuilder, v: list[Value]) -> Value:
        return p.matmul_experts(v[0], p.route(v[1], 1, "softmax"), "w", n_out, 1, n_expert, shared=True)

    found = Probe.of([inputs(2), chosen], make, {"w.weight": stack}).run(backend, threads=2)
    small = {"w.weight": Weight(matrix.dtype, (N_IN, n_out), rows)}
    expected = Probe.of([inputs(2)], lambda p, v: p.matmul(v[0], "w", n_out), small).run(backend)
    np.testing.assert_array_equal(found, expected)
    assert np.abs(found).min() > 0.0
