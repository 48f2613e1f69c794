"""Experts, routers, and what else mixtures and their attention need: right, and equal to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgellm.backends.base import Backend, Weight
from edgellm.backends.lowering import FUSED, lower
from edgellm.program import ProgramBuilder, RopeSpec
from edgellm.program.ops import Activation
from edgellm.program.program import Value
from tests.native.test_exact import sequence
from tests.native.test_ops import TINY, both, table
from tests.support.moe import mixture
from tests.support.native import UNIT, Floats, Probe, available, feed, room, vector, weight

KINDS = ("F32", "BF16", "Q4_K", "Q8_0")


@pytest.fixture(scope="module")
def native(isa: str, core: Any) -> Backend:
    """The C core on each instruction set: no other fast backend has these ops."""
    from edgellm.backends.native import NativeBackend

    return NativeBackend(isa)


def run(kind: str, isa: str, threads: int = 1, chunk: int | None = None, n: int = 60) -> Floats:
    from edgellm.backends.native import NativeBackend

    program, weights = mixture(kind)
    executable = NativeBackend(isa).compile(program, weights, room(program, n_tokens=n, threads=threads))
    (logits,) = feed(executable, program, [sequence(n)], chunk=chunk)
    executable.close()
    return logits


@pytest.mark.parametrize("kind", KINDS)
def test_a_mixture_gives_the_same_bits_however_it_is_run(kind: str, core: Any) -> None:
    first, *rest = available()
    whole = run(kind, first)
    assert np.isfinite(whole).all()
    assert len(np.unique(whole)) > 0.9 * whole.size
    for chunk in (1, 2, 5, 7, 33):
        np.testing.assert_array_equal(run(kind, first, chunk=chunk), whole)
    for threads in (2, 3, 8):
        np.testing.assert_array_equal(run(kind, first, threads), whole)
        np.testing.assert_array_equal(run(kind, first, threads, chunk=7), whole)
    for isa in rest:
        np.testing.assert_array_equal(run(kind, isa, 2), whole)
        np.testing.assert_array_equal(run(kind, isa, chunk=1), whole)


def test_a_mixture_of_floats_is_that_of_the_reference(native: Backend, reference: Backend) -> None:
    program, weights = mixture("F32")
    results = []
    for backend in (native, reference):
        executable = backend.compile(program, weights, room(program, n_tokens=60))
        results.append(feed(executable, program, [sequence(60)])[0].astype(np.float64))
        executable.close()
    assert np.sum((results[0] - results[1]) ** 2) < 1e-11 * np.sum(results[1] ** 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shared", [False, True])
def test_experts_multiply_as_a_matrix_of_their_own_would(native: Backend, kind: str, shared: bool) -> None:
    n_in, n_out, n_expert, n_used = 256, 72, 5, 3
    stack = weight(kind, n_in, n_out * n_expert, 7)
    weights = {"w.weight": Weight(stack.dtype, (n_in, n_out, n_expert), stack.data)}
    scales, biases = np.linspace(0.5, 2, n_expert), table(n_expert, n_out, 3)
    weights |= {"w.scale": vector(scales), "w.bias": vector(biases)}
    x, logits = table(33, n_in * (1 if shared else n_used), 1), table(33, n_expert, 2)

    def make(p: ProgramBuilder, v: list[Value]) -> Value:
        routes = p.route(v[1], n_used, "softmax")
        return p.matmul_experts(v[0], routes, "w", n_out, n_used, n_expert, shared=shared)

    found = Probe.of([x, logits], make, weights).run(native, threads=3)
    chosen = np.argsort(-logits, axis=1, kind="stable")[:, :n_used]
    row_bytes = stack.dtype.row_bytes(n_in)
    for e in range(n_expert):
        rows, slots = np.nonzero(chosen == e)
        data = stack.data[e * n_out * row_bytes : (e + 1) * n_out * row_bytes]
        alone = {"w.weight": Weight(stack.dtype, (n_in, n_out), data)}
        alone |= {"w.scale": vector(scales[e : e + 1]), "w.bias": vector(biases[e])}
        inputs = x[rows] if shared else x.reshape(33, n_used, n_in)[rows, slots]
        expected = Probe.of([inputs], lambda p, v: p.matmul(v[0], "w", n_out), alone).run(native)
        np.testing.assert_array_equal(found.reshape(33, n_used, n_out)[rows, slots], expected)


@pytest.mark.parametrize("scoring", ["softmax", "sigmoid", "chosen"])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("groups", [(1, 1), (4, 2), (8, 3)])
def test_routes(native: Backend, reference: Backend, scoring: Any, biased: bool, groups: tuple[int, int]) -> None:
    logits = table(50, 24, 4, 0.5)  # not so large that sigmoids are all one
    weights = {"bias": vector(table(1, 24, 5)[0])} if biased else {}

    def make(p: ProgramBuilder, v: list[Value]) -> Value:
        bias = "bias" if biased else None
        return p.route(v[0], 4, scoring, bias=bias, normalised=True, scale=2.5, groups=groups)

    found, expected = both(Probe.of([logits], make, weights), native, reference)
    np.testing.assert_array_equal(found[:, :4], expected[:, :4])
    assert (np.abs(found - expected)[:, 4:] <= 40 * UNIT * np.abs(expected[:, 4:]) + TINY).all()


def test_among_equal_experts_the_first_is_chosen(native: Backend, reference: Backend) -> None:
    logits = np.zeros((4, 16), np.float32)
    logits[1, 5:] = 1.0
    logits[2, [3, 9, 12]] = [1.0, 2.0, 2.0]
    found, expected = both(Probe.of([logits], lambda p, v: p.route(v[0], 3, "softmax")), native, reference)
    assert found[:, :3].tolist() == expected[:, :3].tolist() == [[0, 1, 2], [5, 6, 7], [9, 12, 3], [0, 1, 2]]


def test_rows_of_nonsense_choose_experts_that_exist(native: Backend) -> None:
    logits = np.full((20, 6), np.nan, np.float32)
    x = table(20, 32, 1)
    weights = {"w.weight": Weight(weight("F32", 32, 6 * 16, 1).dtype, (32, 16, 6), weight("F32", 32, 6 * 16, 1).data)}

    def make(p: ProgramBuilder, v: list[Value]) -> Value:
        return p.matmul_experts(v[0], p.route(v[1], 4, "sigmoid"), "w", 16, 4, 6, shared=True)

    assert np.isfinite(Probe.of([x, logits], make, weights).run(native, threads=2)).all()


@pytest.mark.parametrize("kind", ["Q4_K", "Q8_0", "MXFP4"])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("nonsense", [False, True])
def test_a_mixture_that_runs_as_one_is_its_ops_one_by_one(
    native: Backend, kind: str, shared: bool, nonsense: bool
) -> None:
    n_in, n_ff, n_expert, n_used = 256, 256, 7, 3
    weights: dict[str, Weight] = {}
    for name, a, b in (("gate", n_in, n_ff), ("up", n_in, n_ff), ("down", n_ff, n_in)):
        stack = weight(kind, a, b * n_expert, len(weights))
        weights[f"{name}.weight"] = Weight(stack.dtype, (a, b, n_expert), stack.data)
        weights[f"{name}.bias"] = vector(table(n_expert, b, 9))
    x, logits = table(33, n_in * (1 if shared else n_used), 1), table(33, n_expert, 2)
    logits[::3] = np.nan if nonsense else logits[::3]

    def experts(p: ProgramBuilder, value: Value, routes: Value, name: str, shared: bool = False) -> Value:
        return p.matmul_experts(value, routes, name, n_in, n_used, n_expert, shared=shared)

    def inner(p: ProgramBuilder, v: list[Value]) -> Value:
        routes = p.route(v[1], n_used, "sigmoid")
        up = experts(p, v[0], routes, "up", shared)
        return p.glu(experts(p, v[0], routes, "gate", shared), up, "silu", 3.0, 0.5)

    def whole(p: ProgramBuilder, v: list[Value]) -> Value:
        routes = p.route(v[1], n_used, "sigmoid")
        gate, up = experts(p, v[0], routes, "gate", shared), experts(p, v[0], routes, "up", shared)
        return experts(p, p.glu(gate, up, "silu", 3.0, 0.5), routes, "down")

    def down(p: ProgramBuilder, v: list[Value]) -> Value:
        return experts(p, v[0], p.route(v[1], n_used, "sigmoid"), "down")

    def part(*names: str) -> dict[str, Weight]:
        return {key: w for key, w in weights.items() if key.split(".")[0] in names}

    probe = Probe.of([x, logits], whole, weights)
    assert (lower(probe.program, probe.weights).ops["flags"] & FUSED).any()
    h = Probe.of([x, logits], inner, part("gate", "up")).run(native)
    expected = Probe.of([h, logits], down, part("down")).run(native)
    assert len(np.unique(expected)) > 0.5 * expected.size
    for rows in (slice(0, 33), slice(0, 1), slice(1, 2), slice(4, 8)):
        for threads in (1, 2, 5):
            found = Probe.of([x[rows], logits[rows]], whole, weights).run(native, threads=threads)
            np.testing.assert_array_equal(found, expected[rows])


ACTIVATIONS: tuple[Activation, ...] = ("silu", "gelu", "gelu_quick", "relu", "relu2", "sigmoid", "softplus", "tanh")


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(native: Backend, reference: Backend, activation: Activation) -> None:
    x = np.concatenate([table(9, 33, 1), np.linspace(-80, 80, 8 * 33).reshape(8, 33)]).astype(np.float32)
    found, expected = both(Probe.of([x], lambda p, v: p.activate(v[0], activation)), native, reference)
    # 1 + tanh cancels for negative x in gelu, and in float64 in the reference's sigmoid.  The argument 1.702 x is
    # rounded before exp, whose relative error is the argument's absolute one.
    slack = 8 * UNIT * np.abs(x) if activation == "gelu" else np.abs(x) * 2.0**-52
    relative = 14.0 + (4 * np.abs(x) if activation == "gelu_quick" else 0.0)
    assert (np.abs(found - expected) <= relative * UNIT * np.abs(expected) + slack + TINY).all()


@pytest.mark.parametrize("width", [1, 15, 16, 17, 64, 100])
@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("weights", ["none", "shared", "own"])
def test_layer_norm(native: Backend, reference: Backend, width: int, runs: int, weights: str) -> None:
    x = table(9, width * runs) + np.float32(2.0)
    shape = (runs, width) if weights == "own" and runs > 1 else (width,)
    factors, shifts = np.resize(table(1, 300, 5), shape), np.resize(table(1, 300, 6), shape)
    given = {} if weights == "none" else {"n.weight": vector(factors), "n.bias": vector(shifts)}
    stem = "n" if given else None
    probe = Probe.of([x], lambda p, v: p.layer_norm(v[0], stem, 1e-3, width), given)
    found, expected = both(probe, native, reference)
    # The mean is off by a few roundings of the values' size, and the deviation may be smaller than they are.
    parts = x.reshape(9, runs, width).astype(np.float64)
    size = 1.0 + np.abs(parts).max(axis=2) / np.sqrt(parts.var(axis=2) + 1e-3)
    size *= np.abs(factors).max() if given else 1.0
    allowed = np.repeat((width / 16 + 20) * UNIT * size, width, axis=1)
    assert (np.abs(found - expected) <= allowed + 8 * UNIT * np.abs(expected)).all()


def test_values_side_by_side(native: Backend, reference: Backend) -> None:
    a, b, c = table(9, 36, 1), table(9, 12, 2), table(9, 8, 3)

    def make(p: ProgramBuilder, v: list[Value]) -> Value:
        joined = p.concat(p.concat(v[0], v[1], 4), v[2], 4, shared=True)
        return p.slice(joined, 3, 15, 20)

    found, expected = both(Probe.of([a, b, c], make), native, reference)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("runs", [1, 4, 36])
def test_a_narrow_side_covers_its_neighbours(native: Backend, reference: Backend, runs: int) -> None:
    x, narrow = table(9, 36, 1), table(9, runs, 2)
    weights = {"w": vector(table(1, runs, 3)[0])}
    product, _ = both(Probe.of([x, narrow], lambda p, v: p.mul(v[0], v[1])), native, reference)
    np.testing.assert_array_equal(product, x * np.repeat(narrow, 36 // runs, axis=1))
    for make in (
        lambda p, v: p.glu(v[1], v[0], "sigmoid"),
        lambda p, v: p.scale(v[0], 0.7, weight="w", shift=0.25),
        lambda p, v: p.scale(v[0], weight="w", inverse=True),
    ):
        used = weights if "w" in make.__code__.co_consts else {}
        found, expected = both(Probe.of([x, narrow], make, used), native, reference)
        assert (np.abs(found - expected) <= 12 * UNIT * (np.abs(expected) + 1.0)).all()


def test_bounds(native: Backend, reference: Backend) -> None:
    gate, up = table(9, 33, 1), table(9, 33, 2)
    found, _ = both(Probe.of([gate], lambda p, v: p.softcap(v[0], 2.0, hard=True)), native, reference)
    np.testing.assert_array_equal(found, np.clip(gate, -2, 2))
    probe = Probe.of([gate, up], lambda p, v: p.glu(v[0], v[1], "gelu_quick", 1.5, 1.0))
    found, expected = both(probe, native, reference)
    assert (np.abs(found - expected) <= (12 + 4 * np.abs(gate)) * UNIT * np.abs(expected) + TINY + 2.0**-45).all()


def test_mixtures_and_sums(native: Backend, reference: Backend) -> None:
    x, by = table(9, 4 * 37, 1, 1.0), table(9, 4 * 3, 2, 1.0)
    found, expected = both(Probe.of([x, by], lambda p, v: p.mix(v[0], v[1], 37)), native, reference)
    size = np.abs(by).reshape(9, 3, 4) @ np.abs(x).reshape(9, 4, 37)
    assert (np.abs(found - expected) <= 5 * UNIT * size.reshape(9, -1)).all()
    found, expected = both(Probe.of([x, x[:, ::-1]], lambda p, v: p.dot(v[0], v[1], 37)), native, reference)
    size = np.abs(x * x[:, ::-1]).reshape(9, 4, 37).sum(axis=2)
    assert (np.abs(found - expected) <= 10 * UNIT * size).all()


@pytest.mark.parametrize("style", ["norm", "neox"])
def test_a_rotation_may_begin_within_a_head(native: Backend, reference: Backend, style: Any) -> None:
    spec = RopeSpec((1.0, 0.3, 0.01), style, None, 1.25, 5)
    x = table(40, 3 * 16)
    found, expected = both(Probe.of([x], lambda p, v: p.rope(v[0], 16, spec)), native, reference)
    heads = np.abs(x.reshape(40, 3, 16)).max(axis=2)
    assert (np.abs(found - expected) <= np.repeat(heads * 12.5 * UNIT, 16, axis=1)).all()
    still: npt.NDArray[Any] = np.r_[0:5, 11:16]
    np.testing.assert_array_equal(found.reshape(40, 3, 16)[..., still], x.reshape(40, 3, 16)[..., still])
