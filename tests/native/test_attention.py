"""Attention over pages against the reference, with a bound made of the roundings of scores and sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgellm.backends.base import PAGE, Backend, KVType
from edgellm.program import KVState
from tests.support.native import UNIT, Floats, Ids, Probe, feed, vector


@dataclass(frozen=True)
class Case:
    """An attention whose queries, keys and values are rows of three tables."""

    n_head: int = 4
    n_head_kv: int = 2
    head_dim: int = 64
    head_dim_v: int = 64
    window: int | None = None
    softcap: float | None = None

    def probe(self, n_rows: int = 40, seed: int = 3) -> Probe:
        widths = (self.n_head * self.head_dim, self.n_head_kv * self.head_dim, self.n_head_kv * self.head_dim_v)
        rng = np.random.default_rng(seed)
        tables = [rng.standard_normal((n_rows, width)).astype(np.float32) for width in widths]
        state = KVState("kv", self.n_head_kv, self.head_dim, self.head_dim_v, self.window)
        return Probe.of(
            tables, lambda b, v: b.attention(v[0], v[1], v[2], state, self.n_head, self.scale, self.softcap)
        )

    @property
    def scale(self) -> float:
        return 2.0 * float(self.head_dim) ** -0.5

    def allowed(self, probe: Probe, n_keys: int) -> float:
        """Bound the error of one output value.

        A score sums head_dim products in four lanes; the softmax turns its absolute error, that of the exp (a few
        units) and of the difference to the maximum into a relative one of each weight and of their sum; summing
        n values and their weights adds a unit for each.
        """
        q, k, v = (np.abs(np.frombuffer(probe.weights[f"table{i}"].data, np.float32)).max() for i in range(3))
        largest = self.scale * self.head_dim * float(q * k)
        score = (self.head_dim / 4 + 8) * UNIT * largest + 8 * UNIT * (self.softcap or largest)
        return float((2.0 * score + (2 * n_keys + 40) * UNIT) * v)


CASES = [
    *(Case(n_head=2 * group) for group in (1, 2, 3, 4, 5, 8)),
    Case(n_head=48, n_head_kv=1),
    *(Case(head_dim=d, head_dim_v=d) for d in (1, 4, 6, 20, 80, 128, 256)),
    *(Case(head_dim=d, head_dim_v=e) for d, e in ((64, 1), (64, 128), (192, 128), (20, 68), (3, 33))),
    *(Case(window=w) for w in (1, 2, 15, 16, 17, 33)),
    *(Case(softcap=c) for c in (0.5, 50.0)),
    Case(n_head=6, head_dim=80, head_dim_v=48, window=20, softcap=5.0),
]


def compare(case: Case, native: Backend, reference: Backend, kv_type: KVType, **how: Any) -> None:
    probe = case.probe()
    sequences: list[Ids] = how.pop("sequences", [np.arange(40, dtype=np.int32)])
    n = sum(map(len, sequences))
    n_pages = 1 + max(max(p) for p in how["pages"]) if "pages" in how else n // PAGE + len(sequences)
    results = []
    for backend, threads in ((native, 3), (reference, 1)):
        executable = probe.compile(backend, n_tokens=n, kv_type=kv_type, n_pages=n_pages, threads=threads)
        found = feed(executable, probe.program, sequences, **how)
        results.append(np.concatenate(found)[:, : probe.width].astype(np.float64))
        executable.close()
    allowed = case.allowed(probe, max(map(len, sequences)))
    assert np.abs(results[0] - results[1]).max() <= allowed
    assert allowed < 0.02 * np.abs(results[1]).max()


@pytest.mark.parametrize("kv_type", ["f16", "f32"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_short_sequences(native: Backend, reference: Backend, case: Case, kv_type: KVType) -> None:
    compare(case, native, reference, kv_type)
    compare(case, native, reference, kv_type, chunk=7)


def differ_by(case: Case, native: Backend, reference: Backend, kv_type: KVType, **how: Any) -> float:
    """Return the relative error of attention over bytes: queries and weights are rounded, too."""
    probe = case.probe()
    sequences: list[Ids] = how.pop("sequences", [np.arange(40, dtype=np.int32)])
    n = sum(map(len, sequences))
    results = []
    for backend in (native, reference):
        executable = probe.compile(backend, n_tokens=n, kv_type=kv_type, threads=2)
        found = np.concatenate(feed(executable, probe.program, sequences, **how))[:, : probe.width].astype(np.float64)
        results.append(found)
        executable.close()
    return float(np.sqrt(((results[0] - results[1]) ** 2).mean() / (results[1] ** 2).mean()))


@pytest.mark.parametrize("kv_type", ["q8_0"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_bytes_come_close(native: Backend, reference: Backend, case: Case, kv_type: KVType) -> None:
    assert differ_by(case, native, reference, kv_type, chunk=7) < 0.01


@pytest.mark.parametrize("kv_type", ["q8_0"])
@pytest.mark.parametrize("case", [Case(), Case(window=300, softcap=20.0), Case(n_head=3, n_head_kv=1)], ids=str)
def test_bytes_come_close_over_several_spans(native: Backend, reference: Backend, case: Case, kv_type: KVType) -> None:
    tokens = np.random.default_rng(8).integers(0, 40, 700).astype(np.int32)
    assert differ_by(case, native, reference, kv_type, sequences=[tokens], chunk=265) < 0.01


@pytest.mark.parametrize("chunk", [None, 64, 265])
@pytest.mark.parametrize("case", [Case(), Case(window=300, softcap=20.0), Case(n_head=3, n_head_kv=1)], ids=str)
def test_contexts_of_several_spans_in_scattered_pages(
    native: Backend, reference: Backend, case: Case, chunk: int | None
) -> None:
    rng = np.random.default_rng(8)
    tokens = rng.integers(0, 40, 700).astype(np.int32)
    pages = [rng.permutation(60)[:44]]
    compare(case, native, reference, "f16", sequences=[tokens], pages=pages, chunk=chunk)


@pytest.mark.parametrize("kv_type", ["f16", "f32"])
@pytest.mark.parametrize("case", [Case(), Case(n_head=10, head_dim=20, head_dim_v=36), Case(window=40)], ids=str)
def test_many_segments_of_many_lengths(native: Backend, reference: Backend, case: Case, kv_type: KVType) -> None:
    rng = np.random.default_rng(9)
    sequences = [rng.integers(0, 40, n).astype(np.int32) for n in (300, 1, 16, 17, 2, 90)]
    counts = [-(-len(s) // PAGE) for s in sequences]
    pages = np.split(rng.permutation(sum(counts)), np.cumsum(counts)[:-1])
    compare(case, native, reference, kv_type, sequences=sequences, pages=pages)
    compare(case, native, reference, kv_type, sequences=sequences, pages=pages, chunk=50)


def test_a_single_visible_key_gives_its_value(native: Backend) -> None:
    case = Case(window=1)
    probe = case.probe()
    values = np.frombuffer(probe.weights["table2"].data, np.float32).reshape(-1, 2, 64)[:40]
    expected = np.repeat(values.astype(np.float16).astype(np.float32), 2, axis=1).reshape(40, -1)
    np.testing.assert_array_equal(probe.run(native, kv_type="f16"), expected)


def test_huge_scores_pick_one_key_without_overflow(native: Backend, reference: Backend) -> None:
    rng = np.random.default_rng(4)
    tables: list[Floats] = [(1000.0 * rng.standard_normal((40, 64))).astype(np.float32) for _ in range(3)]
    state = KVState("kv", 1, 64, 64)
    probe = Probe.of(tables, lambda b, v: b.attention(v[0], v[1], v[2], state, 1, 1.0))
    found = probe.run(native, threads=2)
    np.testing.assert_allclose(found, probe.run(reference), rtol=1e-6)


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_what_is_not_a_number_reaches_all_who_see_it_and_no_other(native: Backend, name: str) -> None:
    case = Case(n_head=4, n_head_kv=2, window=10)
    probe = case.probe()
    clean = probe.run(native).reshape(40, 4, 64)
    index = {"q": 0, "k": 1, "v": 2}[name]
    table = np.frombuffer(probe.weights[f"table{index}"].data, np.float32).reshape(-1, case.head_dim * (4, 2, 2)[index])
    spoiled = table.copy()
    spoiled[12, 5] = np.nan  # head 0 of token 12
    weights = probe.weights | {f"table{index}": vector(spoiled)}
    found = Probe(probe.program, weights, probe.width, probe.n_rows).run(native, threads=2).reshape(40, 4, 64)
    bad: npt.NDArray[np.bool_] = np.zeros((40, 4, 64), bool)
    if name == "q":
        bad[12, 0] = True
    elif name == "k":
        bad[12:22, :2] = True
    else:
        bad[12:22, :2, 5] = True
    np.testing.assert_array_equal(np.isnan(found), bad)
    np.testing.assert_array_equal(found[~bad], clean[~bad])


@pytest.mark.parametrize("kv_type", ["f16", "f32", "q8_0"])
@pytest.mark.parametrize("case", [Case(), Case(window=5, head_dim=20, head_dim_v=36)], ids=str)
def test_slots_nobody_may_see_hold_anything(native: Backend, case: Case, kv_type: KVType) -> None:
    probe = case.probe(n_rows=41)
    for i in range(3):
        rows = np.frombuffer(probe.weights[f"table{i}"].data, np.float32).reshape(probe.program.n_vocab, -1).copy()
        rows[40] = np.nan
        probe.weights[f"table{i}"] = vector(rows)
    tokens = np.arange(40, dtype=np.int32)
    pages = [[5, 0, 3]]
    results = []
    for poison in (False, True):
        executable = probe.compile(native, n_tokens=96, kv_type=kv_type, n_pages=6, threads=2)
        if poison:
            feed(executable, probe.program, [np.full(96, 40, np.int32)])
        for chunk in (None, 1, 7):
            results.append(feed(executable, probe.program, [tokens], pages=pages, chunk=chunk)[0])
        executable.close()
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])
    assert np.isfinite(results[0]).all()
