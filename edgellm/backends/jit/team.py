"""Threads that run one function side by side, again and again."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

Job = Callable[[int, int], None]


class Team:
    """The calling thread and ``n - 1`` others, which wait without using the processor."""

    def __init__(self, n: int) -> None:
        """Start the threads; where the system gives fewer, the team is smaller."""
        self._inboxes: list[SimpleQueue[tuple[Job, int, int] | None]] = []
        self._outbox: SimpleQueue[BaseException | None] = SimpleQueue()
        self._dismiss = weakref.finalize(self, _dismiss, self._inboxes)
        self.resize(n)

    def resize(self, n: int) -> None:
        """Let `n` threads run the next job.  Those that there are stay, whether they are needed or not."""
        for i in range(len(self._inboxes) + 1, n):
            inbox: SimpleQueue[tuple[Job, int, int] | None] = SimpleQueue()
            thread = Thread(target=_serve, args=(inbox, self._outbox), name=f"edgellm-numba-{i}", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                break
            self._inboxes.append(inbox)
        self.size = min(n, 1 + len(self._inboxes))
        """How many threads run a job, with the calling one."""

    def run(self, job: Job) -> None:
        """Call ``job(number, size)`` in every thread at once and wait for all.  Raises what one of them raised."""
        others = self._inboxes[: self.size - 1]
        for i, inbox in enumerate(others, start=1):
            inbox.put((job, i, self.size))
        job(0, self.size)
        errors = [self._outbox.get() for _ in others]
        for error in errors:
            if error is not None:
                raise error

    def close(self) -> None:
        """End the threads.  May be called twice."""
        self._dismiss()


def _dismiss(inboxes: list[SimpleQueue[tuple[Job, int, int] | None]]) -> None:
    for inbox in inboxes:
        inbox.put(None)


def _serve(inbox: SimpleQueue[tuple[Job, int, int] | None], outbox: SimpleQueue[BaseException | None]) -> None:
    while True:
        task = inbox.get()
        if task is None:
            return
        job, number, size = task
        error: BaseException | None = None
        try:
            job(number, size)
        except BaseException as raised:  # It belongs to the thread that waits.
            error = raised
        del task, job
        outbox.put(error)
