"""Cores and memory of the machine and its containers, from made-up /sys and /proc folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgellm.engine.machine import allowed_cpus, available_memory, cpu_quota, default_threads, physical_cores


def put(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tmp_path / "cgroup-of-the-process"


def test_hardware_threads_of_one_core_count_once(tmp_path):
    siblings = {0: "0,4", 4: "0,4", 1: "1,5", 5: "1,5", 2: "2", 3: "3"}
    root = put(tmp_path, {f"cpu{cpu}/topology/thread_siblings_list": text + "\n" for cpu, text in siblings.items()})
    assert physical_cores([0, 4], root) == 1
    assert physical_cores([0, 1, 2, 3, 4, 5], root) == 4
    assert physical_cores([4, 5], root) == 2
    assert physical_cores([8, 9], root) == 2


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "200000 100000\n"}, 2),
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "10000 100000\n"}, 1),
        ({"cpu.max": "nonsense"}, None),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
        ({"cpu.max": "400000 100000", "a/b/cpu.max": "max 100000", "a/cpu.max": "300000 100000"}, 3),
    ],
)
def test_the_smallest_quota_of_all_parents_counts(tmp_path, own, files, expected):
    own.write_text("0::/a/b\n")
    assert cpu_quota(put(tmp_path / "fs", files), own) == expected


def test_a_version_1_group_is_found(tmp_path, own):
    own.write_text("4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n")
    root = put(
        tmp_path / "fs",
        {
            "cpu,cpuacct/docker/x/cpu.cfs_quota_us": "200000",
            "cpu,cpuacct/docker/x/cpu.cfs_period_us": "100000",
            "memory/docker/x/memory.limit_in_bytes": "1000",
            "memory/docker/x/memory.usage_in_bytes": "900",
            "memory/docker/x/memory.stat": "cache 500\ntotal_inactive_file 300\n",
        },
    )
    assert cpu_quota(root, own) == 2
    assert available_memory(tmp_path / "none", root, own) == 400


def test_available_memory_is_that_of_the_machine_or_of_the_group(tmp_path, own):
    own.write_text("0::/\n")
    meminfo = put(tmp_path, {"meminfo": "MemTotal: 100 kB\nMemAvailable:   50 kB\n"}) / "meminfo"
    assert available_memory(meminfo, tmp_path / "none", own) == 50 * 1024
    files = {"memory.max": "9000\n", "memory.current": "8000\n", "memory.stat": "anon 1\ninactive_file 500\n"}
    assert available_memory(meminfo, put(tmp_path / "fs", files), own) == 1500
    put(tmp_path / "fs", {"memory.max": "max\n"})
    assert available_memory(meminfo, tmp_path / "fs", own) == 50 * 1024


def test_this_machine_has_something():
    assert 1 <= default_threads() <= len(allowed_cpus())
    memory = available_memory()
    assert memory is None or memory > 0
