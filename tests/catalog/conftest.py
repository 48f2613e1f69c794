import hashlib
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from edgellm import catalog
from edgellm.catalog.entry import Catalog, Entry, Source


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    """A cache of its own, and a pip that knows only the folder `index`."""
    (tmp_path / "index").mkdir()
    monkeypatch.setenv("EDGELLM_HOME", str(tmp_path / "home"))
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    return tmp_path / "home"


@pytest.fixture
def index(tmp_path) -> Path:
    return tmp_path / "index"


@pytest.fixture
def make_wheel(index) -> Callable[..., Path]:
    def make(package: str, member: str, content: bytes, version: str = "1.0.0") -> Path:
        stem = f"{package.replace('-', '_')}-{version}"
        path = index / f"{stem}-py3-none-any.whl"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
            wheel.writestr(member, content)
            wheel.writestr(f"{package.replace('-', '_')}/__init__.py", "raise SystemExit('a wheel was imported')\n")
            wheel.writestr(
                f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
            )
            wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{stem}.dist-info/RECORD", "")
        return path

    return make


@pytest.fixture
def know(monkeypatch) -> Callable[..., Entry]:
    """Put one model, `tiny`, into the catalog."""

    def put(content: bytes, *sources: Source, file: str = "tiny.gguf", **changes: object) -> Entry:
        values = {
            "name": "tiny",
            "aliases": ("tiny-alias",),
            "architecture": "llama",
            "quantization": "F32",
            "n_params": 1,
            "description": "A test.",
            "file": file,
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "licence": "CC0-1.0",
            "licence_url": "https://creativecommons.org/publicdomain/zero/1.0/",
            "sources": sources,
        }
        entry = Entry(**{**values, **changes})
        monkeypatch.setattr(catalog, "_catalog", lambda: Catalog("tiny", (entry,)))
        return entry

    return put
