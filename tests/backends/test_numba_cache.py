"""Where the Numba backend keeps compiled code, and that it works where nothing can be kept."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgellm.backends.jit import store

COMPILE = """
from edgellm.backends.jit.kernels import compiled
kernel = compiled("row", 30)
print(kernel.cache_hits)
"""


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    """Let every test look for the folder anew."""
    store.cache_folder.cache_clear()
    yield
    store.cache_folder.cache_clear()


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A path below a file, where nobody can make a folder, not even root; all settings point there."""
    (tmp_path / "file").touch()
    for name in ("NUMBA_CACHE_DIR", "EDGELLM_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "file" / name))
    monkeypatch.setattr(store.tempfile, "gettempdir", lambda: str(tmp_path / "file" / "tmp"))
    return tmp_path / "file"


def compile_in_new_process(**environment: str) -> tuple[str, str]:
    """Return what a process prints that compiles a small kernel: how often it found it compiled, and its complaints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", COMPILE],
        cwd=Path(__file__).parents[2],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip(), done.stderr.strip()


def test_the_next_process_does_not_compile_again_unless_the_file_is_damaged(tmp_path: Path) -> None:
    where = {"NUMBA_CACHE_DIR": str(tmp_path)}
    assert compile_in_new_process(**where) == ("0", "")
    assert compile_in_new_process(**where) == ("1", "")
    (code,) = tmp_path.glob("edgellm/kernels-*/*.nbc")
    code.write_bytes(code.read_bytes()[:1000])
    assert compile_in_new_process(**where) == ("0", "")
    assert compile_in_new_process(**where) == ("1", "")


def test_it_works_where_nothing_can_be_kept(nowhere: Path) -> None:
    unusable = {name: str(nowhere / "x") for name in ("NUMBA_CACHE_DIR", "EDGELLM_HOME")}
    code = f"import tempfile; tempfile.tempdir = {str(nowhere / 'tmp')!r}\n{COMPILE}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        env=os.environ | unusable,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "0"


def test_nowhere_is_none_and_says_what_to_do(nowhere: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "edgellm"):
        assert store.cache_folder() is None
    assert "set NUMBA_CACHE_DIR" in caplog.text


def test_the_setting_counts_first_then_the_home_then_the_temporary_files(
    nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store.tempfile, "gettempdir", lambda: str(tmp_path))
    found = store.cache_folder()
    assert found is not None
    assert found.parent == tmp_path
    for name in ("EDGELLM_HOME", "NUMBA_CACHE_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
        store.cache_folder.cache_clear()
        found = store.cache_folder()
        assert found is not None
        assert found.is_relative_to(tmp_path / name)


def test_without_a_home_the_temporary_files_remain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("NUMBA_CACHE_DIR", "EDGELLM_HOME", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.setattr(store.tempfile, "gettempdir", lambda: str(tmp_path))
    found = store.cache_folder()
    assert found is not None
    assert found.parent == tmp_path


@pytest.mark.skipif(sys.platform == "win32", reason="folders have no mode there")
def test_a_folder_that_others_may_write_to_is_not_trusted(
    nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store.tempfile, "gettempdir", lambda: str(tmp_path))
    found = store.cache_folder()
    assert found is not None
    found.chmod(0o777)
    store.cache_folder.cache_clear()
    assert store.cache_folder() is None


def test_what_old_versions_left_goes_when_a_new_one_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    old, recent, other = (tmp_path / "edgellm" / name for name in ("kernels-1", "kernels-2", "models"))
    for folder in (old, recent, other):
        folder.mkdir(parents=True)
        (folder / "file").touch()
    long_ago = time.time() - 86400 * 40
    for folder in (old, other):
        os.utime(folder, (long_ago, long_ago))
    found = store.cache_folder()
    assert found is not None
    assert sorted(path.name for path in found.parent.iterdir()) == sorted(["kernels-2", "models", found.name])
