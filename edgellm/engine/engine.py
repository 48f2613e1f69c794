"""The engine thread of a model: requests from any thread in, steps one after the other."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable

from edgellm.backends.base import Executable
from edgellm.engine.request import Request
from edgellm.engine.runner import Runner, fail_all, typed
from edgellm.engine.scheduler import Plan, Scheduler
from edgellm.errors import ClosedError, EdgeLLMError

_log = logging.getLogger("edgellm.engine")
_engines: weakref.WeakSet[Engine] = weakref.WeakSet()
_JOIN_S = 10.0  # a step that does not end after a cancel in this time is left behind


class Engine:
    """Owns the Executable and the one thread that uses it.

    The thread starts with the first request and sleeps while there is none.  Everything public may be
    called from any thread of the process that made the engine; in a forked child it raises ClosedError.
    """

    def __init__(
        self,
        executable: Executable,
        scheduler: Scheduler,
        *,
        before_step: Callable[[], None] = lambda: None,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        """`before_step` may raise to end all running requests; `on_close` runs once the Executable is closed."""
        self._executable = executable
        self._scheduler = scheduler
        self._runner = Runner(executable, scheduler)
        self._before_step = before_step
        self._on_close = on_close
        self._pid = os.getpid()
        self._arrivals: deque[Request] = deque()
        # Reentrant: the garbage collector may run a Generation's finalizer in a thread that holds it.
        self._wake = threading.Condition(threading.RLock())
        self._thread: threading.Thread | None = None
        self._closing = False
        self._broken: EdgeLLMError | None = None
        self._stepping: tuple[Request, ...] = ()
        self.steps = 0
        """Steps done so far."""
        _engines.add(self)

    @property
    def threads(self) -> int:
        """How many threads a step may use; what is set counts from the next step on."""
        return self._executable.threads

    @threads.setter
    def threads(self, n: int) -> None:
        self.check_usable()
        self._executable.threads = n

    def check_process(self) -> None:
        """Raise ClosedError in a process that was forked from the one the engine lives in."""
        if os.getpid() != self._pid:
            raise ClosedError(
                "this Model was loaded before the process was forked and does not work in the child: "
                'load it in the child, or start processes with the "spawn" method'
            )

    def check_usable(self) -> None:
        """Raise what keeps the engine from taking requests, if anything does."""
        self.check_process()
        if self._closing:
            raise ClosedError("this Model is closed")
        if self._broken is not None:
            raise self._broken

    def submit(self, request: Request) -> None:
        """Queue a request.  Raises ClosedError."""
        self.check_process()
        with self._wake:
            self.check_usable()
            self._arrivals.append(request)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="edgellm-engine", daemon=True)
                self._thread.start()
            self._wake.notify()

    def cancel(self, request: Request) -> None:
        """End a request now.  Its pages are free again within a step, or at once if it has the step to itself."""
        if request.done or os.getpid() != self._pid:
            return
        request.finish("cancelled")
        with self._wake:
            if self._stepping and all(r.done for r in self._stepping):
                self._executable.cancel()

    def close(self) -> None:
        """Cancel everything, stop the thread and give back the memory.  May be called twice, and in a forked child."""
        if os.getpid() != self._pid:
            return
        with self._wake:
            first, self._closing = not self._closing, True
            thread = self._thread
            if self._stepping:
                self._executable.cancel()
            self._wake.notify_all()
        if thread is None:
            if first:
                self._release()
        elif thread is not threading.current_thread():
            thread.join(_JOIN_S)

    def _run(self) -> None:
        try:
            while self._wait():
                self._turn()
        finally:
            self._release()

    def _wait(self) -> bool:
        """Sleep until there is work, take in new requests, and return False when it is time to end."""
        with self._wake:
            while not (self._closing or self._arrivals or self._scheduler.busy):
                self._wake.wait()
            if self._closing:
                return False
            while self._arrivals:
                self._scheduler.add(self._arrivals.popleft())
            return True

    def _turn(self) -> None:
        try:
            plan = self._scheduler.plan()
            if plan.works:
                self._before_step()
                self._step(plan)
        except Exception as error:
            # Not the step itself, whose errors belong to its requests: the file changed, or the engine is at fault.
            _log.debug("the engine failed", exc_info=True)
            failure = typed(error)
            fail_all(self._scheduler.requests(), failure)
            self._broken = failure

    def _step(self, plan: Plan) -> None:
        with self._wake:
            self._stepping = tuple(work.request for work in plan.works)
        try:
            self._runner.run(plan)
        finally:
            with self._wake:
                self._stepping = ()
            self.steps += 1

    def _release(self) -> None:
        for request in [*self._arrivals, *self._scheduler.requests()]:
            request.finish("cancelled")
        self._arrivals.clear()
        self._scheduler.clear()
        self._runner.close()
        self._executable.close()
        self._on_close()


@atexit.register
def _close_all() -> None:
    """Stop every engine before the interpreter goes away under its thread."""
    for engine in list(_engines):
        engine.close()
