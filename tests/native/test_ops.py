"""Every op that sees one row at a time, against the reference: bounds count the roundings of float32."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from edgellm.backends.base import PAGE, Backend, Batch, Executable, Segment
from edgellm.backends.native import NativeBackend
from edgellm.program import KVState, ProgramBuilder, RopeSpec
from edgellm.program.program import Value
from tests.support.native import UNIT, Probe, vector

Doubles = npt.NDArray[np.float64]
WIDTHS = (1, 2, 15, 16, 17, 31, 33, 64, 100, 256)
TINY = 1e-37
"""What flushing or rounding of subnormals may cost."""


def table(n_rows: int, width: int, seed: int = 0, spread: float = 3.0) -> npt.NDArray[np.float32]:
    """Return rows of sizes from e^-spread to e^spread."""
    rng = np.random.default_rng(seed)
    sizes = np.exp(rng.uniform(-spread, spread, (n_rows, 1)))
    return (rng.standard_normal((n_rows, width)) * sizes).astype(np.float32)


@pytest.fixture
def row_backend(isa: str) -> Backend:
    """The native backend alone: Numba has no kernels for what few models need, and says so."""
    return NativeBackend(isa)


def both(probe: Probe, native: Backend, reference: Backend, threads: int = 3) -> tuple[Doubles, Doubles]:
    found, expected = probe.run(native, threads=threads), probe.run(reference)
    return found.astype(np.float64), expected.astype(np.float64)


@pytest.mark.parametrize("width", WIDTHS)
def test_add_and_scale_round_once(native: Backend, reference: Backend, width: int) -> None:
    a, b = table(9, width, 1), table(9, width, 2)
    added, _ = both(Probe.of([a, b], lambda p, v: p.add(v[0], v[1])), native, reference)
    np.testing.assert_array_equal(added, a + b)
    scaled, _ = both(Probe.of([a], lambda p, v: p.scale(v[0], 0.3)), native, reference)
    np.testing.assert_array_equal(scaled, a * np.float32(0.3))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_rms_norm(native: Backend, reference: Backend, width: int, weighted: bool) -> None:
    weights = {"norm": vector(table(1, width, 5)[0])} if weighted else {}
    x = table(9, width)
    x[4] = 0.0
    probe = Probe.of([x], lambda p, v: p.rms_norm(v[0], "norm" if weighted else None, 1e-6), weights)
    found, expected = both(probe, native, reference)
    # Half the relative error of the sum of squares (one rounding a lane step, four of the tree), then 6 roundings.
    assert (np.abs(found - expected) <= ((width / 16 + 5) / 2 + 6) * UNIT * np.abs(expected) + TINY).all()


@pytest.mark.parametrize("size", [1, 6, 20, 64])
def test_rms_norm_of_every_head(native: Backend, reference: Backend, size: int) -> None:
    weights = {"norm": vector(table(1, size, 5)[0])}
    probe = Probe.of([table(5, 3 * size)], lambda p, v: p.rms_norm(v[0], "norm", 1e-6, size), weights)
    found, expected = both(probe, native, reference)
    assert (np.abs(found - expected) <= 14 * UNIT * np.abs(expected) + TINY).all()


@pytest.mark.parametrize("size", [1, 2, 9, 16, 33])
def test_softmax_of_every_run(row_backend: Backend, reference: Backend, size: int) -> None:
    x = table(9, 3 * size, spread=4.0)
    found, expected = both(Probe.of([x], lambda p, v: p.softmax(v[0], size)), row_backend, reference)
    np.testing.assert_allclose(found.reshape(9, 3, size).sum(axis=2), 1.0, rtol=4 * UNIT * 4)
    assert (np.abs(found - expected) <= (size / 16 + 20 + np.abs(x).max()) * UNIT * expected + TINY).all()


@pytest.mark.parametrize("rounds", [1, 2, 20])
@pytest.mark.parametrize("size", [1, 3, 4, 17])
def test_sinkhorn_makes_rows_and_columns_sum_to_one(
    row_backend: Backend, reference: Backend, size: int, rounds: int
) -> None:
    x = table(9, 2 * size * size, spread=0.5)
    found, expected = both(Probe.of([x], lambda p, v: p.sinkhorn(v[0], size, rounds, 1e-6)), row_backend, reference)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    columns = found.reshape(9, 2, size, size).sum(axis=2)
    np.testing.assert_allclose(columns, 1.0, atol=1e-4)


def test_constants_come_with_the_program(row_backend: Backend, reference: Backend) -> None:
    values = [0.25 * i for i in range(48)]
    probe = Probe.of([table(5, 48)], lambda p, v: p.add(v[0], p.embed_constant("own", values)))
    found, expected = both(probe, row_backend, reference)
    np.testing.assert_array_equal(found, expected.astype(np.float32))
    assert probe.program.constants == {"own": tuple(values)}


@pytest.mark.parametrize("style", ["norm", "neox"])
@pytest.mark.parametrize(("head_dim", "n_rot"), [(2, 2), (6, 4), (20, 20), (64, 32), (80, 80), (128, 64), (256, 256)])
def test_rope_turns_heads_by_position(
    native: Backend, reference: Backend, style: str, head_dim: int, n_rot: int
) -> None:
    factors = np.linspace(0.5, 4.0, n_rot // 2)
    frequency = tuple(10000.0 ** (-2.0 * i / n_rot) for i in range(n_rot // 2))
    spec = RopeSpec(frequency, "neox" if style == "neox" else "norm", "factors", 1.25)
    x = table(40, 3 * head_dim)
    probe = Probe.of([x], lambda p, v: p.rope(v[0], head_dim, spec), {"factors": vector(factors)})
    found, expected = both(probe, native, reference)
    heads = np.abs(x.reshape(40, 3, head_dim)).max(axis=2)
    # Cosine and sine: one rounding each, one for the magnitude; two products and their sum: three more.
    allowed = np.repeat(heads * 1.25 * 2 * 5 * UNIT, head_dim, axis=1)
    assert (np.abs(found - expected) <= allowed).all()
    untouched = found.reshape(40, 3, head_dim)[..., n_rot:]
    np.testing.assert_array_equal(untouched, x.reshape(40, 3, head_dim)[..., n_rot:])


@pytest.mark.parametrize("start", [0, 1000, 131_072, 1_000_003, 4_000_000])
def test_angles_stay_exact_far_out(native: Backend, reference: Backend, start: int) -> None:
    # Angles of a far position come through an attention that sees one key: q must match k's rotation there.
    spec = RopeSpec(tuple(500000.0 ** (-i / 32) for i in range(32)), "neox")
    state = KVState("kv", 1, 64, 64, 1, spec)
    x = table(4, 64, spread=0.5)

    def make(p: ProgramBuilder, v: list[Value]) -> Value:
        turned = p.rope(v[0], 64, spec)
        return p.add(p.attention(turned, turned, v[0], state, 1, 1.0), turned)

    probe = Probe.of([x], make)
    results = []
    for backend in (native, reference):
        executable = probe.compile(backend, n_tokens=4, n_pages=2)
        results.append(_at(executable, start)[:, :64].astype(np.float64))
        executable.close()
    # Over one visible key attention returns its value: what is left of the sum is the rotation.
    found, expected = results
    assert np.abs(found - expected).max() <= np.abs(x).max() * 14 * UNIT
    assert np.abs(expected - 2.0 * x).max() > 0.1 or start == 0


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("activation", ["silu", "gelu"])
def test_glu(native: Backend, reference: Backend, activation: str, width: int) -> None:
    gate = np.concatenate([table(9, width, 1), np.linspace(-100, 100, 8 * width).reshape(8, width)]).astype(np.float32)
    up = table(17, width, 2)
    probe = Probe.of([gate, up], lambda p, v: p.glu(v[0], v[1], "silu" if activation == "silu" else "gelu"))
    found, expected = both(probe, native, reference)
    if activation == "silu":
        # exp to within two units, then sum, quotient and product.  Below -88.4 the kernel's exp is
        # infinite and the result zero; 1 + tanh of the reference cancels to a unit of float64.
        allowed = 8 * UNIT * np.abs(expected) + np.abs(gate * up) * 2.0**-52 + TINY
    else:
        # 1 + tanh cancels for negative gates: the error of tanh, a few units of one, counts in full.
        allowed = 8 * UNIT * np.abs(gate.astype(np.float64) * up) + TINY
    assert (np.abs(found - expected) <= allowed).all()


@pytest.mark.parametrize("cap", [0.5, 30.0, 50.0])
def test_softcap_over_its_whole_range(native: Backend, reference: Backend, cap: float) -> None:
    x = np.concatenate([np.linspace(-200, 200, 2000), np.linspace(-1, 1, 2000) ** 5, [0.0, 1e-30, 1e30, -1e30, 3e38]])
    x = np.pad(x, (0, 27)).reshape(-1, 48).astype(np.float32)
    found, expected = both(Probe.of([x], lambda p, v: p.softcap(v[0], cap)), native, reference)
    assert (np.abs(found - expected) <= 8 * UNIT * np.abs(expected) + TINY).all()
    assert np.abs(found).max() <= cap


@pytest.mark.parametrize("op", ["silu", "gelu", "softcap"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_in_its_element(native: Backend, op: str, bad: float) -> None:
    clean = table(3, 33)
    x = clean.copy()
    x[1, [0, 17, 32]] = bad
    ones = np.ones_like(x)

    def run(gate: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        if op == "softcap":
            return Probe.of([gate], lambda p, v: p.softcap(v[0], 20.0)).run(native)
        return Probe.of([gate, ones], lambda p, v: p.glu(v[0], v[1], "silu" if op == "silu" else "gelu")).run(native)

    found, expected = run(x), run(clean)
    spoiled = found[1, [0, 17, 32]]
    if np.isnan(bad):
        assert np.isnan(spoiled).all()
    elif op == "softcap":
        np.testing.assert_array_equal(spoiled, np.copysign(np.float32(20.0), np.float32(bad)))
    elif bad > 0:
        np.testing.assert_array_equal(spoiled, np.float32(np.inf))
    found[1, [0, 17, 32]] = expected[1, [0, 17, 32]]
    np.testing.assert_array_equal(found, expected)


def test_position_scale_grows_by_steps(native: Backend, reference: Backend) -> None:
    x = table(50, 33)
    probe = Probe.of([x], lambda p, v: p.position_scale(v[0], 0.4, 8))
    found, expected = both(probe, native, reference)
    assert (np.abs(found - expected) <= 3 * UNIT * np.abs(expected)).all()
    np.testing.assert_array_equal(found[:8], x[:8])
    assert (np.abs(found[8:]) > np.abs(x[8:])).all()


def test_only_wanted_rows_are_selected(native: Backend) -> None:
    x = table(40, 50)
    probe = Probe.of([x], lambda p, v: p.scale(v[0], 2.0))
    executable = probe.compile(native, n_tokens=40, threads=2)
    wanted = np.array([0, 7, 8, 39], np.int32)
    found = executable.step(Batch(np.arange(40, dtype=np.int32), [Segment(0, 40, [])], wanted))
    np.testing.assert_array_equal(found[:, :50], 2.0 * x[wanted])
    none = executable.step(Batch(np.arange(40, dtype=np.int32), [Segment(0, 40, [])], wanted[:0]))
    assert none.shape == (0, 50)
    executable.close()


def _at(executable: Executable, start: int) -> npt.NDArray[np.float32]:
    """Run four tokens at a far position; nothing before them is looked at."""
    pages = np.zeros((start + 3) // PAGE + 1, np.int32)
    pages[-1] = 1
    segment = Segment(start, 4, [pages])
    rows = np.arange(4, dtype=np.int32)
    return executable.step(Batch(rows, [segment], rows))
