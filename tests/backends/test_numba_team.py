"""The threads of the Numba backend."""

from __future__ import annotations

import threading

import pytest

from edgellm.backends.jit.team import Team


def test_every_thread_runs_the_job_at_the_same_time() -> None:
    team = Team(4)
    together = threading.Barrier(4, timeout=30.0)
    seen: list[tuple[int, int]] = []

    def job(number: int, size: int) -> None:
        together.wait()  # Passes only if all are here at once.
        seen.append((number, size))

    for _ in range(3):
        team.run(job)
    team.close()
    team.close()
    assert sorted(seen) == [(i, 4) for i in range(4) for _ in range(3)]


def test_what_a_thread_raises_reaches_the_caller_and_the_team_goes_on() -> None:
    team = Team(3)

    def job(number: int, size: int) -> None:
        if number == 2:
            raise ValueError("two")

    for _ in range(2):
        with pytest.raises(ValueError, match="two"):
            team.run(job)
    done = []
    team.run(lambda number, size: done.append(number))
    assert sorted(done) == [0, 1, 2]
    team.close()


def test_a_team_grows_and_runs_jobs_in_fewer_threads() -> None:
    before = set(threading.enumerate())
    team = Team(2)
    for n, there in ((4, 3), (1, 3), (3, 3), (5, 4)):
        team.resize(n)
        done: list[tuple[int, int]] = []
        team.run(lambda number, size, done=done: done.append((number, size)))
        assert sorted(done) == [(i, n) for i in range(n)]
        assert len(set(threading.enumerate()) - before) == there
    team.close()


def test_a_team_is_smaller_where_threads_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    team = Team(4)
    done = []
    team.run(lambda number, size: done.append((number, size)))
    assert done == [(0, 1)]


def test_losing_a_team_ends_its_threads() -> None:
    before = set(threading.enumerate())
    team = Team(3)
    mine = set(threading.enumerate()) - before
    assert len(mine) == 2
    del team
    for thread in mine:
        thread.join(30.0)
    assert not any(thread.is_alive() for thread in mine)
