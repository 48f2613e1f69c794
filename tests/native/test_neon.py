"""The kernels of other processor families, under emulation."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "neon"
NEEDED = ("gcc", "aarch64-linux-gnu-gcc", "qemu-aarch64")


def test_neon_kernels_give_the_bits_of_every_other_instruction_set(tmp_path: Path) -> None:
    missing = [tool for tool in NEEDED if shutil.which(tool) is None]
    if missing:
        reason = f"this machine has no {', '.join(missing)}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    done = subprocess.run([SCRIPT, tmp_path], capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "equal on: x86-generic" in done.stdout
    assert "neon" in done.stdout
