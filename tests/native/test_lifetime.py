"""Closing, cancelling and dropping executors at any moment, from any thread."""

from __future__ import annotations

import ctypes
import gc
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgellm.backends.base import Backend, Batch, Executable, Segment
from edgellm.errors import ArgumentError, CancelledError, ClosedError
from tests.support.hostile import Description, Step
from tests.support.native import Ids, decoder, feed, room, tables_of

LONG = 512


def long_step() -> Step:
    """Return a step that takes a while everywhere: as many rows as the description allows, in plain C."""
    return Step(
        tokens=np.zeros(LONG, np.int32),
        segments=np.array([(0, LONG)], np.int32),
        tables=np.tile(np.arange(LONG // 16, dtype=np.int32), 2),
        starts=np.array([0, LONG // 16, LONG // 8], np.int64),
    )


class Running:
    """An executor in the middle of a step, in another thread."""

    def __init__(self, core: Any) -> None:
        description = Description.of("F16", "generic")
        description.max_rows = LONG
        description.pages[:] = LONG // 16
        self.executor = description.make(core)
        self.result: list[object] = []
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        deadline = time.monotonic() + 60.0
        while not self.busy() and self.thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.0005)

    def _run(self) -> None:
        try:
            self.result.append(long_step().run(self.executor))
        except Exception as error:
            self.result.append(error)

    def busy(self) -> bool:
        try:
            self.executor.memory()
        except ValueError as error:
            return "running" in str(error)
        return False

    def end(self) -> object:
        self.thread.join()
        return self.result[0]


@pytest.fixture
def running(core: Any) -> Any:
    """An executor that is running a step."""
    for _ in range(20):
        found = Running(core)
        if found.busy():
            yield found
            found.thread.join()
            return
        found.thread.join()
    pytest.fail("the step was always over before anything could be tried")


def test_a_running_executor_refuses_all_but_cancel(running: Running) -> None:
    pages = np.array([0, 1], np.int32)
    calls: list[Callable[[], object]] = [
        running.executor.close,
        lambda: Step().run(running.executor),
        lambda: running.executor.copy_pages(0, pages),
        lambda: running.executor.rotate_keys(0, pages, 1),
        running.executor.memory,
    ]
    refused = 0
    for call in calls:
        if running.busy():
            with pytest.raises(ValueError, match="is running a step"):
                call()
            refused += 1
    assert refused
    running.executor.cancel()
    running.end()
    running.executor.close()


def test_a_cancelled_step_says_so_and_the_next_is_sound(core: Any) -> None:
    expected = Step().run(Description.of("F16", "generic").make(core))
    for _ in range(50):  # a step may end between being seen and being cancelled; not every time
        running = Running(core)
        running.executor.cancel()
        result = running.end()
        np.testing.assert_array_equal(Step().run(running.executor), expected)
        if isinstance(result, core.Cancelled):
            return
    pytest.fail("no step was ever cancelled")


def test_an_executor_dropped_in_a_step_lives_until_its_end(running: Running) -> None:
    running.executor.cancel()
    del running.executor
    gc.collect()
    running.thread.join()


def test_a_cancel_between_steps_is_forgotten(core: Any, isa: str) -> None:
    executor = Description.of("Q4_K", isa).make(core)
    executor.cancel()
    expected = Step().run(executor)
    executor.cancel()
    executor.cancel()
    np.testing.assert_array_equal(Step().run(executor), expected)


def test_a_closed_executor_refuses_all_but_closing(core: Any, isa: str) -> None:
    executor = Description.of("Q4_K", isa).make(core)
    executor.close()
    executor.close()
    executor.cancel()
    pages = np.array([0, 1], np.int32)
    for call in (
        lambda: Step().run(executor),
        lambda: executor.copy_pages(0, pages),
        lambda: executor.rotate_keys(0, pages, 1),
        executor.memory,
    ):
        with pytest.raises(ValueError, match="closed"):
            call()


def test_the_backend_speaks_of_running_and_closed_in_its_own_words(core: Any) -> None:
    from edgellm.backends.native import NativeBackend

    program, weights = decoder("F16")
    backend: Backend = NativeBackend("generic")
    executable = backend.compile(program, weights, room(program, n_tokens=LONG))
    tokens: Ids = np.zeros(LONG, np.int32)
    batch = Batch(tokens, [Segment(0, LONG, tables_of(program, np.arange(LONG // 16)))], np.zeros(1, np.int32))
    ended: list[BaseException | None] = []

    def work() -> None:
        try:
            while True:
                executable.step(batch)
        except (CancelledError, ClosedError) as error:
            ended.append(error)

    def refusal(call: Callable[[], object]) -> str:
        """Return what a call is told that finds a step running; between two steps it is not told anything."""
        deadline = time.monotonic() + 60.0
        while time.monotonic() < deadline:
            try:
                call()
            except ArgumentError as error:
                return str(error)
        return "nothing"

    thread = threading.Thread(target=work)
    thread.start()
    assert "running a step" in refusal(lambda: executable.copy_pages(0, [(0, 0)]))
    while thread.is_alive():
        executable.cancel()
        time.sleep(0.001)
    thread.join()
    assert isinstance(ended[0], CancelledError)
    executable.close()
    with pytest.raises(ClosedError):
        executable.step(batch)


def test_two_threads_with_one_executor_never_mix(core: Any) -> None:
    executor = Description.of("Q4_K", "generic").make(core)
    expected = Step().run(executor)
    outcomes: list[npt.NDArray[np.float32] | Exception] = []

    def work() -> None:
        for _ in range(10):
            try:
                outcomes.append(Step(threads=1).run(executor))
            except ValueError as error:
                outcomes.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results = [outcome for outcome in outcomes if not isinstance(outcome, Exception)]
    assert results
    for result in results:
        np.testing.assert_array_equal(result, expected)
    assert all("running a step" in str(o) for o in outcomes if isinstance(o, Exception))


def resident() -> int:
    """Return the bytes of memory that this process holds, after it gave back what it only keeps for later use."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize("closed", [False, True])
def test_dropped_executables_leave_nothing_behind(best: Backend, closed: bool) -> None:
    program, weights = decoder("Q4_K")
    tokens: Ids = np.zeros(512, np.int32)

    def used() -> Executable:
        executable = best.compile(program, weights, room(program, n_tokens=512, threads=2))
        feed(executable, program, [tokens])
        return executable

    def growth(n: int, keep: bool) -> int:
        kept = []
        before = resident()
        for _ in range(n):
            executable = used()
            if keep:
                kept.append(executable)
            elif closed:
                executable.close()
            del executable
        gc.collect()
        return resident() - before

    growth(5, keep=False)
    assert growth(50, keep=False) < 16 << 20
    assert growth(20, keep=True) > 32 << 20  # what a leak would look like


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_refused_descriptions_leave_nothing_behind(core: Any) -> None:
    def once() -> None:
        late = Description.of("F32", "generic")
        late.ops["kind"][-1] = 99
        with pytest.raises(ValueError):
            late.make(core)
        # The second group fails after the first has all its pages.
        big = Description.of("F32", "generic")
        big.pages[:] = 64, 2**26
        big.states["n_head_kv"][1] = big.states["n_head_kv"][0]
        big.max_rows = 2**20
        big.slots[:] = 2**26
        with pytest.raises(MemoryError):
            big.make(core)

    for _ in range(20):
        once()
    gc.collect()
    before = resident()
    for _ in range(300):
        once()
    gc.collect()
    assert resident() - before < 16 << 20
