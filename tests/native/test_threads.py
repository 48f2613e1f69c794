"""The thread pool: forks, more threads than cores, several callers, signals, and silence between steps.

Each test runs a script of its own, because it counts threads, forks or gets signals.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROLOGUE = """
import os, signal, sys, threading, time
import numpy as np
from edgellm.backends.native import NativeBackend
from tests.support.native import decoder, feed, room

def compiled(kind="Q4_K", threads=3, n=256, isa=None):
    program, weights = decoder(kind)
    return program, NativeBackend(isa).compile(program, weights, room(program, n_tokens=n, threads=threads))

tokens = np.arange(60, dtype=np.int32)
"""

pytestmark = [
    pytest.mark.usefixtures("core"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system with fork"),
]


def start(script: str) -> subprocess.Popen[str]:
    code = PROLOGUE + textwrap.dedent(script)
    pipe: Any = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=pipe, stderr=pipe, text=True)


def run(script: str) -> str:
    """Run a script to its end and return what it printed."""
    process = start(script)
    try:
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, err
    return out


def test_a_forked_child_has_a_pool_of_its_own() -> None:
    out = run("""
        program, executable = compiled(threads=4)
        expected = feed(executable, program, [tokens])[0]
        for _ in range(3):
            child = os.fork()
            if child == 0:
                signal.alarm(60)
                same = np.array_equal(feed(executable, program, [tokens])[0], expected)
                other, fresh = compiled(threads=2)
                same &= np.array_equal(feed(fresh, other, [tokens])[0], expected)
                grandchild = os.fork()
                if grandchild == 0:
                    signal.alarm(60)
                    os._exit(0 if np.array_equal(feed(executable, program, [tokens])[0], expected) else 1)
                same &= os.waitpid(grandchild, 0)[1] == 0
                os._exit(0 if same else 1)
            assert np.array_equal(feed(executable, program, [tokens])[0], expected)
            assert os.waitpid(child, 0)[1] == 0
        print("done")
    """)
    assert out == "done\n"


def test_a_fork_in_the_middle_of_a_step_does_not_hang() -> None:
    out = run("""
        program, executable = compiled("F16", threads=3, n=300, isa="generic")
        long = np.zeros(300, np.int32)
        expected = feed(executable, program, [tokens])[0]
        stop = threading.Event()

        def work():
            while not stop.is_set():
                feed(executable, program, [long])

        thread = threading.Thread(target=work)
        thread.start()
        for delay in (0.0, 0.003, 0.01, 0.02, 0.05):
            time.sleep(delay)
            child = os.fork()
            if child == 0:
                signal.alarm(60)
                other, fresh = compiled("F16", threads=3)
                os._exit(0 if np.array_equal(feed(fresh, other, [tokens])[0], expected) else 1)
            assert os.waitpid(child, 0)[1] == 0
        stop.set()
        thread.join()
        print("done")
    """)
    assert out == "done\n"


def test_more_threads_than_cores_give_the_same_bits() -> None:
    out = run("""
        expected = None
        for threads in (1, 2, 4 * (os.cpu_count() or 1), 256, 2):
            program, executable = compiled(threads=threads)
            found = feed(executable, program, [tokens])[0]
            expected = found if expected is None else expected
            assert np.array_equal(found, expected), threads
        print("done")
    """)
    assert out == "done\n"


def test_callers_at_once_each_get_their_own_result() -> None:
    out = run("""
        def sequence(i):
            return np.random.default_rng(i).integers(0, 99, 40).astype(np.int32)

        kinds = ["Q4_K", "Q8_0", "F32", "Q6_K"]
        expected = []
        for i, kind in enumerate(kinds):
            program, executable = compiled(kind, threads=1)
            expected.append(feed(executable, program, [sequence(i)])[0])
        wrong = []

        def work(i):
            program, executable = compiled(kinds[i], threads=1 + i)
            for chunk in (None, 7, 16) * 3:
                if not np.array_equal(feed(executable, program, [sequence(i)], chunk=chunk)[0], expected[i]):
                    wrong.append((i, chunk))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert not wrong, wrong
        print("done")
    """)
    assert out == "done\n"


def test_idle_workers_sleep() -> None:
    out = run("""
        program, executable = compiled(threads=4)
        feed(executable, program, [tokens])
        time.sleep(0.2)
        before = time.process_time()
        time.sleep(1.0)
        print(time.process_time() - before)
    """)
    assert float(out) < 0.2


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_a_job_wakes_only_the_workers_it_has_shares_for() -> None:
    out = run("""
        def switches():
            found = {}
            for task in os.listdir("/proc/self/task"):
                with open(f"/proc/self/task/{task}/status") as file:
                    found[int(task)] = [line for line in file if "ctxt_switches" in line]
            del found[threading.get_native_id()]
            return found

        def settled():
            before = switches()
            while True:  # until everyone sleeps; a thread that sleeps has no part in anything
                time.sleep(0.1)
                now = switches()
                if now == before:
                    return now
                before = now

        program, executable = compiled(threads=64)
        expected = feed(executable, program, [tokens])[0]
        for threads in (1, 2, 5, 64):
            executable.threads = threads
            before = settled()
            assert np.array_equal(feed(executable, program, [tokens])[0], expected)
            after = settled()
            print(threads, sum(after[task] != before[task] for task in before))
    """)
    woken = dict(map(int, line.split()) for line in out.splitlines())
    assert woken == {1: 0, 2: 1, 5: 4, 64: 63}


def test_workers_take_no_signals() -> None:
    out = run("""
        program, executable = compiled(threads=4)
        feed(executable, program, [tokens])
        main = threading.get_native_id()
        blocked = {}
        for task in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{task}/status") as file:
                mask = next(int(line.split()[1], 16) for line in file if line.startswith("SigBlk"))
            blocked[int(task)] = bool(mask & 1 << (signal.SIGINT - 1))
        assert not blocked.pop(main)
        print(sum(blocked.values()))
    """)
    assert int(out) >= 3


def interrupt(process: subprocess.Popen[str]) -> str:
    """Send Ctrl-C to a script that said it is ready, and return what it printed then."""
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert ready == "ready\n", process.communicate()[1]
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, err
    return out


def test_ctrl_c_reaches_a_thread_that_runs_steps() -> None:
    out = interrupt(
        start("""
        program, executable = compiled(threads=3)
        expected = feed(executable, program, [tokens])[0]
        print("ready", flush=True)
        try:
            while True:
                feed(executable, program, [tokens])
        except KeyboardInterrupt:
            print("interrupted")
        print(np.array_equal(feed(executable, program, [tokens])[0], expected))
    """)
    )
    assert out == "interrupted\nTrue\n"


def test_ctrl_c_reaches_the_main_thread_while_another_computes() -> None:
    out = interrupt(
        start("""
        from edgellm.errors import CancelledError

        program, executable = compiled("F16", threads=3, n=1024, isa="generic")
        ended = threading.Event()

        def work():
            try:
                while True:
                    feed(executable, program, [np.zeros(1024, np.int32)])
            except CancelledError:
                ended.set()

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        print("ready", flush=True)
        try:
            ended.wait(100)
        except KeyboardInterrupt:
            print("interrupted")
        while not ended.is_set():
            executable.cancel()
            time.sleep(0.001)
        thread.join()
        print(len(feed(executable, program, [tokens])[0]))
    """)
    )
    assert out == "interrupted\n60\n"
