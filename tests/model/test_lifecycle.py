"""Threads, streams, failures and the end of a `Model`."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import edgellm
from tests.model.conftest import CHAT, ids_of
from tests.support.fake import FakeBackend


def test_eight_threads_on_one_model(files, model):
    expected = ids_of(model.generate("hello world", max_tokens=10, temperature=0))
    rows = model.logits([1, 2, 3])
    errors: list[BaseException] = []

    def work() -> None:
        try:
            assert ids_of(model.generate("hello world", max_tokens=10, temperature=0)) == expected
            assert model.detokenize(model.tokenize("hello")) == "hello"
            np.testing.assert_allclose(model.logits([1, 2, 3]), rows, rtol=0, atol=1e-5)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []


def test_closing_while_others_work(files):
    m = edgellm.Model(files["ids"], backend="reference")
    outcomes: list[object] = []

    def work() -> None:
        try:
            for i in range(1000):
                outcomes.append(ids_of(m.generate([i % 100], max_tokens=50)))
        except edgellm.ClosedError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    m.close()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert sum(isinstance(outcome, edgellm.ClosedError) for outcome in outcomes) == 4
    for call in (
        lambda: m.generate([1]),
        lambda: m.generate("x"),
        lambda: m.chat(CHAT),
        lambda: m.logits([1]),
        lambda: m.tokenize("x"),
        lambda: m.detokenize([1]),
    ):
        with pytest.raises(edgellm.ClosedError):
            call()
    m.close()
    assert m.info.n_ctx == 256


def test_closing_ends_a_wait_for_logits(files, monkeypatch):
    backend = FakeBackend(lambda history: 0)
    monkeypatch.setattr("edgellm.loading.get_backend", lambda name: backend)
    m = edgellm.Model(files["ids"])
    backend.executable.delay = 30.0
    timer = threading.Timer(0.05, m.close)
    timer.start()
    with pytest.raises(edgellm.CancelledError):
        m.logits([1, 2, 3])
    timer.join()


def test_leaving_the_loop_and_losing_the_model(files):
    before = set(threading.enumerate())
    started = set()
    for _ in edgellm.Model(files["bos"], backend="reference").generate("hello", seed=3):
        started = set(threading.enumerate()) - before
        break
    gc.collect()
    assert len(started) == 1
    for thread in started:
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_gets_errors_at_once(files):
    code = f"""
import os, edgellm
m = edgellm.Model({str(files["bos"])!r}, backend="reference")
m.generate("hello", max_tokens=2).text
running = m.generate("hello", max_tokens=200)
child = os.fork()
if child == 0:
    calls = [lambda: m.generate("x"), lambda: m.logits([1]), lambda: m.tokenize("x"), lambda: running.text,
             lambda: m.chat([{{"role": "user", "content": "x"}}])]
    errors = 0
    for call in calls:
        try:
            call()
        except edgellm.ClosedError as error:
            errors += "fork" in str(error)
    m.close()
    raise SystemExit(errors != len(calls))
running.cancel()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_a_failed_load_leaves_nothing_behind(tmp_path, monkeypatch):
    unraisable = []
    monkeypatch.setattr("sys.unraisablehook", unraisable.append)
    empty = tmp_path / "empty.gguf"
    empty.write_bytes(b"")
    with pytest.raises(edgellm.ModelFormatError):
        edgellm.Model(empty)
    gc.collect()
    assert unraisable == []
    empty.unlink()
    if os.path.isdir("/proc/self/fd"):
        links = [
            os.readlink(f"/proc/self/fd/{fd}")
            for fd in os.listdir("/proc/self/fd")
            if fd.isdigit() and os.path.lexists(f"/proc/self/fd/{fd}")
        ]
        assert not any("empty.gguf" in link for link in links)


def test_a_load_that_fails_late_closes_what_was_opened(files, monkeypatch):
    backend = FakeBackend(lambda history: 0)
    monkeypatch.setattr("edgellm.loading.get_backend", lambda name: backend)

    def fail(*args, **kwargs):
        raise RuntimeError("late")

    monkeypatch.setattr("edgellm.loading.Engine", fail)
    with pytest.raises(RuntimeError, match="late"):
        edgellm.Model(files["ids"])
    assert backend.executable.closed == 1


def test_a_file_cut_while_in_use_is_an_error_and_no_crash(files, tmp_path):
    path = tmp_path / "cut.gguf"
    path.write_bytes(files["ids"].read_bytes())
    with edgellm.Model(path, backend="reference") as m:
        assert len(ids_of(m.generate([1], max_tokens=1))) == 1
        os.truncate(path, path.stat().st_size - 4096)
        with pytest.raises(edgellm.ModelFormatError, match=r"changed|is .* now"):
            ids_of(m.generate([1], max_tokens=1))


def test_nothing_is_printed_and_nothing_of_others_is_lost(files, capfd):
    stop = threading.Event()
    lines = 0

    def talk() -> None:
        nonlocal lines
        while not stop.is_set():
            os.write(1, b"line\n")
            lines += 1
            stop.wait(0.001)

    talker = threading.Thread(target=talk)
    talker.start()
    with edgellm.Model(files["bos"], backend="reference") as m:
        both = [m.generate("hello", max_tokens=20), m.generate("world", max_tokens=20)]
        for generation in both:
            assert generation.text is not None
    stop.set()
    talker.join()
    out, err = capfd.readouterr()
    assert out == "line\n" * lines
    assert err == ""


def test_missing_standard_streams_do_no_harm(files):
    code = f"""
import os, sys
sys.stdout = sys.stderr = None
os.close(1); os.close(2)
import edgellm
with edgellm.Model({str(files["bos"])!r}, backend="reference", n_ctx=999) as m:
    text = m.generate("hello", max_tokens=3).text
    m.chat([{{"role": "user", "content": "x"}}], max_tokens=1).text
try:
    edgellm.Model("/no/such/file.gguf")
except edgellm.ModelNotFoundError:
    os._exit(17)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=300, check=False)
    assert done.returncode == 17
