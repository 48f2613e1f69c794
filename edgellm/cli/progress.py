"""A progress bar for downloads."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

from edgellm.cli.ui import is_terminal, say, size

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Download:
    """Shows a download on standard error: call it with ``(done_bytes, total_bytes, phase)``.

    Without a terminal each phase is one line, and nothing is shown before the first call.
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._phase: str | None = None
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Download:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, done: int, total: int | None, phase: str) -> None:
        new, self._phase = phase != self._phase, phase
        if not is_terminal(sys.stderr):
            if new:
                say(f"{self._title}: {phase}" + (f" ({size(total)})" if total else ""))
            return
        bar = self._bar or self._start()
        if new:
            if self._task is not None:
                bar.remove_task(self._task)
            self._task = bar.add_task(f"{self._title}: {phase}", total=total or None)
        assert self._task is not None
        bar.update(self._task, completed=done, total=total or None)

    def _start(self) -> Progress:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        title = TextColumn("{task.description}", markup=False)
        parts = (title, BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self._bar = Progress(*parts, console=Console(stderr=True), transient=True)
        self._bar.start()
        return self._bar
