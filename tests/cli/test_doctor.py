from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from edgellm import diagnostics
from edgellm.backends.lowering import OP, STATE
from edgellm.errors import BackendError

Invoke = Callable[..., Result]


def test_versions_machine_and_folders_are_reported(invoke: Invoke, home: Path) -> None:
    result = invoke("doctor", "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    report = json.loads(result.stdout)
    assert report["python"] == platform.python_version()
    assert report["packages"]["numpy"] == {"version": np.__version__, "extra": None}
    assert report["packages"]["huggingface_hub"]["extra"] == "hf"
    assert report["cpu"]["physical_cores"] >= report["cpu"]["default_threads"] >= 1
    assert report["memory_available_bytes"] > 1 << 20
    assert report["backends"]["reference"] == {"problem": None}
    assert report["cache_dir"] == {"path": str(home), "problem": None}
    assert report["environment"]["EDGELLM_HOME"] == str(home)


def test_a_backend_that_cannot_be_used_says_why(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    def get_backend(name: str) -> None:
        if name == "native":
            raise BackendError("the native backend cannot be used: it was not built")

    monkeypatch.setattr(diagnostics, "get_backend", get_backend)
    lines = invoke("doctor").stdout.splitlines()
    assert any(line.startswith("native backend") and line.endswith("it was not built") for line in lines)
    assert any(line.split() == ["reference", "backend", "ok"] for line in lines)


def test_the_instruction_sets_come_from_the_native_code(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    native: Any = ModuleType("edgellm._native")
    native.cpu_info = lambda: {"isa": "avx2", "available": ["avx2", "generic"], "features": ["fma", "f16c"]}
    native.OP_BYTES, native.STATE_BYTES = OP.itemsize, STATE.itemsize
    monkeypatch.setitem(sys.modules, "edgellm._native", native)
    rows = [line.split() for line in invoke("doctor").stdout.splitlines()]
    assert ["instruction", "set", "avx2"] in rows
    assert ["available", "avx2", "generic"] in rows
    assert ["features", "fma", "f16c"] in rows


def test_without_native_code_the_instruction_set_is_unknown(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "edgellm._native", None)
    assert json.loads(invoke("doctor", "--json").stdout)["cpu"]["isa"] is None
    assert "unknown without the native backend" in invoke("doctor").stdout


def test_an_optional_package_that_is_missing_comes_with_advice(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnostics, "_version", lambda _name: None)
    assert "pip install edgellm[hf]" in invoke("doctor").stdout


def test_a_cache_that_cannot_be_used_is_reported(invoke: Invoke, home: Path) -> None:
    home.write_text("in the way")
    assert "is not a folder" in invoke("doctor").stdout
