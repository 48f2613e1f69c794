"""What this machine, and the container around the process, allow: cores and memory."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path

_SYS = Path("/sys/devices/system/cpu")
_CGROUP = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")
_MEMINFO = Path("/proc/meminfo")


def default_threads() -> int:
    """Return the number of physical cores that this process may use, at least 1.

    A core counts once however many hardware threads it has, and only if the process's affinity
    allows one of them; a container's CPU quota (cgroup v1 or v2) rounds up to whole cores.
    """
    cores = physical_cores(allowed_cpus())
    quota = cpu_quota()
    return max(1, cores if quota is None else min(cores, quota))


def allowed_cpus() -> list[int]:
    """Return the logical CPUs that the process may run on."""
    if sys.platform == "linux":
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def physical_cores(cpus: list[int], root: Path = _SYS) -> int:
    """Count the distinct cores behind `cpus`; a CPU whose topology is unknown counts as a core."""
    return len({_text(root / f"cpu{cpu}" / "topology" / "thread_siblings_list") or str(cpu) for cpu in cpus})


def cpu_quota(root: Path = _CGROUP, own: Path = _OWN_CGROUP) -> int | None:
    """Return the smallest CPU quota of the process's control groups in whole cores, or None without one."""
    return min((q for folder in _groups("cpu", root, own) if (q := _quota(folder)) is not None), default=None)


def available_memory(meminfo: Path = _MEMINFO, root: Path = _CGROUP, own: Path = _OWN_CGROUP) -> int | None:
    """Return how many bytes the process can still get without swapping, or None where nobody can tell.

    Page cache that the system would give up counts as available; a control group's limit does too.
    """
    limits = [limit for folder in _groups("memory", root, own) if (limit := _memory_left(folder)) is not None]
    machine = _machine_memory(meminfo)
    if machine is not None:
        limits.append(machine)
    return min(limits, default=None)


def _machine_memory(meminfo: Path) -> int | None:
    for line in _text(meminfo).splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    if sys.platform == "win32":
        return _windows_memory()
    try:  # macOS gives no figure for available memory without private calls: half of what is built in
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, OSError, ValueError):
        return None


def _windows_memory() -> int | None:
    class Status(ctypes.Structure):
        """MEMORYSTATUSEX of kernel32."""

        _fields_ = [("length", ctypes.c_uint32), ("load", ctypes.c_uint32)] + [
            (name, ctypes.c_uint64)
            for name in ("total", "free", "total_file", "free_file", "total_virtual", "free_virtual", "free_extended")
        ]

    status = Status(length=ctypes.sizeof(Status))
    kernel32 = getattr(ctypes, "windll").kernel32  # noqa: B009 (the attribute exists on Windows only)
    return int(status.free) if kernel32.GlobalMemoryStatusEx(ctypes.byref(status)) else None


def _groups(controller: str, root: Path, own: Path) -> Iterator[Path]:
    """The folders that may limit the process: its group and all parents; in a container the root is its own group."""
    yield root
    yield root / controller
    for line in _text(own).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base = root / controllers if controllers else root
        folder = base / path.lstrip("/")
        while folder != base and base in folder.parents:
            yield folder
            folder = folder.parent


def _quota(group: Path) -> int | None:
    quota, period = [*_text(group / "cpu.max").split(), "", ""][:2]
    if not quota:
        quota, period = _text(group / "cpu.cfs_quota_us"), _text(group / "cpu.cfs_period_us")
    if not quota.isdecimal() or not period.isdecimal() or int(period) == 0:
        return None  # no such file, "max", or -1: no limit
    return max(1, -(-int(quota) // int(period)))


def _memory_left(group: Path) -> int | None:
    limit, used = _text(group / "memory.max"), _text(group / "memory.current")
    if not limit:
        limit, used = _text(group / "memory.limit_in_bytes"), _text(group / "memory.usage_in_bytes")
    if not limit.isdecimal() or not used.isdecimal():
        return None
    reclaimable = 0
    for line in _text(group / "memory.stat").splitlines():
        if line.startswith(("inactive_file ", "total_inactive_file ")):
            reclaimable = int(line.split()[1])
    return max(0, int(limit) - int(used) + reclaimable)


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
