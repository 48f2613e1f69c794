"""Chunks, company, cache and seeds change no bit."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import edgellm
from tests.model.conftest import ids_of, prompt
from tests.support.tiny import write_tiny


@pytest.mark.parametrize("name", ["ids", "windows"])
def test_logits_do_not_depend_on_chunks_company_or_cache(files, name, backend_name):
    tokens = prompt(100)
    found = []
    for n_batch in (512, 64, 7):
        with edgellm.Model(files[name], backend=backend_name, n_batch=n_batch) as m:
            found.append(m.logits(tokens))
            company = [m.generate(prompt(30, i), max_tokens=50) for i in range(3)]
            ids_of(m.generate(tokens, max_tokens=3))
            found.append(m.logits(tokens))
            del company
    assert found[0].shape == (100, 128)
    assert found[0].dtype == np.float32
    for other in found[1:]:
        if backend_name == "native":
            assert np.array_equal(other, found[0])
        else:  # The reference leaves the order of its sums to NumPy.
            np.testing.assert_allclose(other, found[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["ids", "windows"])
def test_together_as_alone_warm_as_cold(files, name, backend_name):
    jobs = [(prompt(5 + 20 * i, i), 20) for i in range(6)]
    alone = []
    for ids, n in jobs:
        with edgellm.Model(files[name], backend=backend_name) as m:
            alone.append(ids_of(m.generate(ids, max_tokens=n, temperature=0)))
    with edgellm.Model(files[name], backend=backend_name, n_batch=48) as m:
        together = [m.generate(ids, max_tokens=n, temperature=0) for ids, n in jobs]
        assert [ids_of(g) for g in together] == alone
        for (ids, n), expected in zip(jobs, alone, strict=True):
            assert ids_of(m.generate(ids, max_tokens=n, temperature=0)) == expected
            warm = m.generate(ids, max_tokens=n, temperature=0)
            assert ids_of(warm) == expected
            assert len(ids) < 32 or warm.usage.cached_tokens >= 16


def test_after_a_shift_keys_are_those_of_a_fresh_run(tmp_path, backend_name):
    # In one layer a key depends on its token and position alone, so a fresh run over the kept tokens has the same.
    path = write_tiny(tmp_path / "one.gguf", n_layer=1)
    with edgellm.Model(path, backend=backend_name, n_ctx=64, kv_type="f32", overflow="shift") as m:
        first = prompt(20)
        generation = m.generate(first, max_tokens=140, temperature=0)
        made, history = ids_of(generation), list(first)
        for token in made:
            # Before a shift, right after it, and in between.
            if len(history) in (20, 49, 50, 57, 64):
                assert int(m.logits(history)[-1].argmax()) == token
            if len(history) == 64:
                del history[16:32]
            history.append(token)
        assert generation.dropped_tokens == 6 * 16


def test_a_prompt_that_is_the_beginning_of_the_last_one(files, ids_model):
    long = prompt(90)
    ids_of(ids_model.generate(long, max_tokens=5, temperature=0))
    for n in (80, 64, 33, 32, 16, 1):
        warm = ids_of(ids_model.generate(long[:n], max_tokens=5, temperature=0))
        with edgellm.Model(files["ids"], backend="reference") as cold:
            assert warm == ids_of(cold.generate(long[:n], max_tokens=5, temperature=0))


def test_a_branch_within_the_window(files):
    base = prompt(60)
    branch = base[:20] + prompt(40, 9)
    with edgellm.Model(files["windows"], backend="reference") as m:
        warm = [ids_of(m.generate(p, max_tokens=10, temperature=0)) for p in (base, base, branch, base)]
    with edgellm.Model(files["windows"], backend="reference") as m:
        cold = ids_of(m.generate(branch, max_tokens=10, temperature=0))
    assert warm[0] == warm[1] == warm[3]
    assert warm[2] == cold


def test_cancelled_work_is_reused_only_where_it_is_right(files):
    base = prompt(60)
    with edgellm.Model(files["ids"], backend="reference", n_batch=16) as m:
        generation = m.generate(base, max_tokens=100, temperature=0)
        while len(generation.token_ids) < 5:
            pass
        generation.cancel()
        follow = base + generation.token_ids + [3, 4]
        warm = [ids_of(m.generate(p, max_tokens=8, temperature=0)) for p in (follow, prompt(40, 5), follow)]
        prefill = m.generate(prompt(200, 6), max_tokens=5)
        prefill.cancel()
        warm.append(ids_of(m.generate(prompt(200, 6), max_tokens=8, temperature=0)))
    with edgellm.Model(files["ids"], backend="reference") as m:
        cold = [
            ids_of(m.generate(p, max_tokens=8, temperature=0)) for p in (follow, prompt(40, 5), follow, prompt(200, 6))
        ]
    assert warm == cold


def test_a_seed_gives_the_same_text_whatever_is_cached(model):
    def draw(**more):
        generation = model.generate("hello world", max_tokens=12, temperature=1.02, **more)
        return ids_of(generation), generation.seed

    first = [draw(seed=0) for _ in range(3)]
    assert first[0] == first[1] == first[2]
    assert first[0][1] == 0
    assert draw(seed=5) == draw(seed=5)
    assert draw(seed=5) != first[0]
    ids, seed = draw()
    assert draw(seed=seed) == (ids, seed)
    assert len({draw(seed=-1)[1], draw()[1], seed}) == 3


def test_seeds_differ_between_processes(files):
    code = f"import edgellm; m = edgellm.Model({str(files['ids'])!r}, backend='reference'); print(m.generate([1]).seed)"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300) for _ in range(2)]
    assert runs[0].stdout != runs[1].stdout
    assert [run.stderr for run in runs] == ["", ""]
