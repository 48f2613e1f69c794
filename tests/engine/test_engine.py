"""The engine thread: cancelling, losing, failing and closing."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time

import pytest

from edgellm.errors import BackendError, ClosedError, ModelFormatError, NumericalError, OutOfMemoryError
from tests.support.fake import hashed


def wait_for(condition, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.002)


def stands_still(b) -> bool:
    """Whether no step is done while nothing should be."""
    wait_for(lambda: not b.scheduler.busy)
    steps = b.fake.steps
    time.sleep(0.03)
    return b.fake.steps == steps


def test_nothing_runs_before_the_first_request(bench):
    before = threading.enumerate()
    b = bench(hashed())
    assert threading.enumerate() == before
    b.ids([1, 2], 1)
    assert len(threading.enumerate()) == len(before) + 1
    b.engine.close()
    assert threading.enumerate() == before


@pytest.mark.parametrize("n_prompt", [5, 200])
def test_cancel_ends_a_step_of_its_own_at_once(bench, n_prompt):
    b = bench(hashed())
    b.fake.delay = 120.0
    generation = b.generate([1] * n_prompt, 10)
    b.fake.entered.wait(30)
    start = time.monotonic()
    generation.cancel()
    assert list(generation) == []
    assert generation.finish_reason == "cancelled"
    assert stands_still(b)
    assert time.monotonic() - start < 60
    b.fake.delay = 0.0
    assert len(b.ids([3], 2)) == 2


def test_cancel_in_mid_decode_keeps_what_came(bench):
    b = bench(hashed(), n_ctx=4096)
    generation = b.generate([1, 2, 3], None)
    wait_for(lambda: len(generation.token_ids) >= 5)
    generation.cancel()
    assert stands_still(b)
    assert generation.finish_reason == "cancelled"
    assert generation.usage.completion_tokens == len(generation.token_ids) >= 5
    assert b.free_pages() == [257]


def test_a_queued_request_that_is_cancelled_never_starts(bench):
    b = bench(hashed(), n_running=1)
    b.fake.gate.clear()
    first, second = b.generate([1] * 4, 3), b.generate([2] * 9, 3)
    b.fake.entered.wait(30)
    second.cancel()
    assert list(second) == []
    assert second.finish_reason == "cancelled"
    assert b.fake.cancels == 0
    b.fake.gate.set()
    assert first.text == ""
    assert first.finish_reason == "length"
    assert not any((0, 9) in rows for rows in b.fake.rows)


def test_cancelling_one_of_two_does_not_disturb_the_other(bench):
    b = bench(hashed(), n_ctx=1024)
    alone = b.ids([5, 6], 50)
    b.fake.gate.clear()
    one, two = b.generate([5, 6], 50), b.generate([7] * 3, 500)
    b.fake.entered.wait(30)
    b.fake.gate.set()
    wait_for(lambda: len(two.token_ids) > 3)
    two.cancel()
    assert one.text == ""
    assert one.token_ids == alone


def test_a_lost_generation_is_cancelled(bench):
    b = bench(hashed(), n_ctx=100_000)
    generation = b.generate([1], None)
    wait_for(lambda: b.fake.steps > 3)
    del generation
    gc.collect()
    assert stands_still(b)
    assert b.free_pages() == [6251]


def test_reuse_after_a_cancel_gives_what_a_cold_run_gives(bench):
    ids = list(range(30)) * 4
    cold = bench(hashed()).ids(ids, 20)
    b = bench(hashed(), n_batch=32)
    b.fake.gate.clear()
    generation = b.generate(ids, 20)
    b.fake.entered.wait(30)
    generation.cancel()
    b.fake.gate.set()
    assert b.ids(ids, 20) == cold
    assert b.ids([9, 8, 7], 5) == bench(hashed()).ids([9, 8, 7], 5)
    assert b.ids(ids, 20) == cold


def test_an_error_of_the_step_reaches_its_request_and_no_other(bench):
    b = bench(hashed())

    def fail(batch) -> None:
        if 13 in batch.tokens:
            raise ZeroDivisionError("boom")

    b.fake.fail = fail
    alone = [b.ids([i, i], 1) for i in (1, 2)]
    b.fake.gate.clear()
    good, bad, fine = b.generate([1, 1], 1), b.generate([13], 3), b.generate([2, 2], 1)
    b.fake.gate.set()
    with pytest.raises(BackendError, match="ZeroDivisionError: boom") as caught:
        next(bad)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(BackendError):
        _ = bad.text
    assert bad.finish_reason is None
    assert bad.done
    assert [(g.text, g.token_ids)[1] for g in (good, fine)] == alone


def test_a_step_out_of_memory_is_ours(bench):
    b = bench(hashed())

    def fail(batch) -> None:
        raise MemoryError

    b.fake.fail = fail
    with pytest.raises(OutOfMemoryError):
        _ = b.generate([1], 1).text


def test_logits_without_a_choice_fail_one_request(bench):
    b = bench(hashed())
    good = b.fake.step

    def step(batch):
        logits = good(batch)
        if 13 in batch.tokens:
            logits[:] = float("nan")
        return logits

    b.fake.step = step
    bad = b.generate([13], 3)
    with pytest.raises(NumericalError, match="step 0"):
        _ = bad.text
    assert len(b.ids([1, 2], 3)) == 3


def test_what_is_found_before_a_step_ends_everything(bench):
    broken = []

    def check() -> None:
        if broken:
            raise ModelFormatError("the file is shorter now")

    b = bench(hashed(), n_ctx=10_000, before_step=check)
    generation = b.generate([1], None)
    wait_for(lambda: b.fake.steps > 2)
    broken.append(True)
    with pytest.raises(ModelFormatError, match="shorter now"):
        _ = generation.text
    with pytest.raises(ModelFormatError):
        b.generate([1], 1)


def test_a_step_cancelled_by_nobody_is_done_again(bench):
    b = bench(hashed())
    b.fake.gate.clear()
    generation = b.generate([1, 2, 3], 2)
    b.fake.entered.wait(30)
    b.fake.cancel()
    b.fake.gate.set()
    assert generation.text == ""
    assert generation.token_ids == bench(hashed()).ids([1, 2, 3], 2)


def test_close_cancels_what_runs_and_what_waits(bench):
    closed = []
    b = bench(hashed(), n_running=1, on_close=lambda: closed.append(b.fake.closed))
    b.fake.delay = 120.0
    running, waiting = b.generate([1], 5), b.generate([2], 5)
    b.fake.entered.wait(30)
    start = time.monotonic()
    b.engine.close()
    b.engine.close()
    assert time.monotonic() - start < 60
    assert (running.text, waiting.text) == ("", "")
    assert (running.finish_reason, waiting.finish_reason) == ("cancelled", "cancelled")
    assert b.fake.closed == 1
    assert closed == [1]
    with pytest.raises(ClosedError):
        b.generate([1], 1)


def test_close_without_a_request_gives_back_the_memory(bench):
    b = bench(hashed())
    b.engine.close()
    assert b.fake.closed == 1


def test_close_from_many_threads(bench):
    b = bench(hashed())
    generation = b.generate([1], 100)
    threads = [threading.Thread(target=b.engine.close) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert generation.done
    assert b.fake.closed == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_gets_an_error_at_once(bench):
    b = bench(hashed(), n_ctx=100_000)
    generation = b.generate([1], None)
    wait_for(lambda: b.fake.steps > 2)
    child = os.fork()
    if child == 0:
        failed = 1
        try:
            calls = [lambda: b.generate([1], 1), lambda: next(generation), generation.cancel]
            errors = 0
            for call in calls:
                try:
                    call()
                except ClosedError:
                    errors += 1
            generation.close()
            b.engine.close()
            failed = errors != len(calls)
        finally:
            os._exit(failed)
    deadline = time.monotonic() + 60
    while (done := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > deadline:
            os.kill(child, 9)
            os.waitpid(child, 0)
            pytest.fail("the child hangs")
        time.sleep(0.005)
    assert os.waitstatus_to_exitcode(done[1]) == 0
    generation.cancel()


def test_the_interpreter_ends_quietly_in_the_middle_of_a_step():
    code = """
from edgellm.cache.pages import GroupSpec, PageCache
from edgellm.engine.engine import Engine
from edgellm.engine.generation import Generation
from edgellm.engine.request import Request
from edgellm.engine.scheduler import Scheduler, Sizes
from edgellm.sampling import Sampler, SamplingParams
from tests.support.fake import FakeExecutable, hashed
fake = FakeExecutable(hashed())
fake.delay = 300.0
engine = Engine(fake, Scheduler(PageCache([GroupSpec(None, 64)]), Sizes(256, 64, 8, 64, 16, 0)))
request = Request([1], max_tokens=5, sampler=Sampler(SamplingParams(), 32))
engine.submit(request)
generation = Generation(request, engine)
fake.entered.wait(30)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
