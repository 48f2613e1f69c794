"""What there is to know about this machine and this installation when something does not work."""

from __future__ import annotations

import importlib
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from edgellm.backends import get_backend
from edgellm.catalog import cache_dir
from edgellm.engine.machine import allowed_cpus, available_memory, default_threads, physical_cores
from edgellm.errors import EdgeLLMError

_PACKAGES = {
    "numpy": None,
    "tokenizers": None,
    "sentencepiece": None,
    "jinja2": None,
    "gguf": None,
    "numba": None,
    "huggingface_hub": "hf",
}
"""Packages whose versions matter, and the extra that brings those which are optional."""


def diagnose() -> dict[str, Any]:
    """Return plain values, fit for JSON; what is missing or unknown is None."""
    import edgellm

    folder = cache_dir()
    return {
        "edgellm": edgellm.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": _cpu(),
        "memory_available_bytes": available_memory(),
        "backends": {name: {"problem": _problem(name)} for name in ("native", "numba", "reference")},
        "packages": {name: {"version": _version(name), "extra": extra} for name, extra in _PACKAGES.items()},
        "cache_dir": {"path": str(folder), "problem": _not_writable(folder)},
        "environment": {name: value for name, value in sorted(os.environ.items()) if name.startswith("EDGELLM_")},
    }


def _cpu() -> dict[str, Any]:
    cpus = allowed_cpus()
    found: dict[str, Any] = {
        "name": _cpu_name(),
        "logical_cpus": len(cpus),
        "physical_cores": physical_cores(cpus),
        "default_threads": default_threads(),
        "isa": None,
        "available": [],
        "features": [],
    }
    try:
        native = importlib.import_module("edgellm._native")
    except ImportError:
        return found
    return {**found, **native.cpu_info()}


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _problem(backend: str) -> str | None:
    """Return why a backend cannot be used, or None if it can."""
    try:
        get_backend(backend)
    except EdgeLLMError as error:
        return str(error)
    return None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _not_writable(folder: Path) -> str | None:
    """Return why nothing can be put into `folder`, which need not exist yet."""
    existing = next((p for p in (folder, *folder.parents) if p.exists()), folder)
    if not existing.is_dir():
        return f"{existing} is not a folder"
    return None if os.access(existing, os.W_OK | os.X_OK) else f"{existing} is not writable"
