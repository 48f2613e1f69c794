"""A program on a pseudo-terminal, for tests of what people type and see."""

from __future__ import annotations

import contextlib
import os
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
needs_terminals = pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are POSIX")


class Terminal:
    """Runs Python code whose standard streams are a terminal (POSIX only).  A context manager.

    With ``pipe_output`` standard output goes to a pipe instead; `stdout` has it after `wait`.
    """

    def __init__(self, code: str, *, pipe_output: bool = False, env: dict[str, str] | None = None) -> None:
        import fcntl
        import pty
        import struct
        import termios

        self.screen = ""
        """What the terminal was sent so far, escape sequences taken out."""
        self.raw = ""
        self._seen = 0
        self.stdout = b""
        self._fd, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))
        take = f"import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n{code}"
        self._process = subprocess.Popen(
            [sys.executable, "-c", take],
            stdin=terminal,
            stdout=subprocess.PIPE if pipe_output else terminal,
            stderr=terminal,
            start_new_session=True,
            cwd=ROOT,
            env={**os.environ, "TERM": "xterm", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), **(env or {})},
        )
        os.close(terminal)

    def send(self, text: str) -> None:
        """Type `text`."""
        os.write(self._fd, text.encode())

    def expect(self, pattern: str, seconds: float = 60.0) -> None:
        """Read until `pattern` is on the part of the screen after what was expected before."""
        deadline = time.monotonic() + seconds
        start = self._seen
        while not (found := re.compile(pattern).search(self.screen, start)):
            if not self._read(deadline - time.monotonic()):
                raise AssertionError(f"{pattern!r} did not appear in {self.screen[start:]!r}")
        self._seen = found.end()

    def wait(self, seconds: float = 60.0) -> int:
        """Read to the end and return the exit code."""
        deadline = time.monotonic() + seconds
        while self._read(deadline - time.monotonic()):
            pass
        if self._process.stdout is not None:
            self.stdout = self._process.stdout.read()
        return self._process.wait(max(0.1, deadline - time.monotonic()))

    def _read(self, seconds: float) -> bool:
        if seconds <= 0 or not select.select([self._fd], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # How Linux says that the other end is closed.
            return False
        self.raw += data.decode("utf-8", "replace")
        self.screen = re.sub(r"\x1b(\[[ -?]*[@-~]|[=>78]|\][^\x07]*\x07)", "", self.raw)
        return bool(data)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        os.close(self._fd)
