"""What packagers and newcomers get: the source archive, the wheel made of it, and what that installs.

Building takes up to a minute, so these tests run in CI and with ``CI=1 python -m pytest tests/test_packaging.py``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest

import edgellm
from tests.support.tiny import write_tiny

pytestmark = pytest.mark.skipif(not os.environ.get("CI"), reason="builds take a while: set CI=1")

ROOT = Path(__file__).parents[1]
SOURCES = ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", ".ci")
FOLDERS = ("edgellm", "csrc", "models", "docs", "examples", "tests")
LEFTOVERS = shutil.ignore_patterns("__pycache__", "*.so", "*.pyd", "*.o")


def python(*arguments: str, cwd: Path, **env: str) -> str:
    """Run Python in a folder and return what it writes; the checkout is not on its path."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "EDGELLM_"))}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=cwd, env={**clean, **env}, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pip(*arguments: str, cwd: Path, **env: str) -> None:
    """Run pip without a network."""
    python("-m", "pip", *arguments, cwd=cwd, PIP_NO_INDEX="1", PIP_DISABLE_PIP_VERSION_CHECK="1", **env)


def build_wheel(source: Path, out: Path, **env: str) -> Path:
    """Return the wheel of an unpacked source archive, made with the setuptools that are here."""
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(out), str(source), cwd=source, **env)
    (wheel,) = out.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive."""
    tree = tmp_path_factory.mktemp("tree")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, tree / name, ignore=LEFTOVERS)
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        copy(ROOT / name, tree / name)
    python("-c", "from setuptools import build_meta; build_meta.build_sdist('dist')", cwd=tree)
    (path,) = (tree / "dist").iterdir()
    return path


@pytest.fixture(scope="module")
def source(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive, unpacked."""
    folder = tmp_path_factory.mktemp("source")
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    (unpacked,) = folder.iterdir()
    return unpacked


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel; objects that the checkout has of the same sources and compiler are not compiled again."""
    if (ROOT / "build" / "native").is_dir():
        shutil.copytree(ROOT / "build" / "native", source / "build" / "native")
    return build_wheel(source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing but the installed package."""
    folder = tmp_path_factory.mktemp("installed")
    pip("install", "--no-deps", "--target", str(folder), str(wheel), cwd=folder)
    return folder


@pytest.fixture(scope="module")
def pure(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, installed where no compiler works."""
    folder, copy = tmp_path_factory.mktemp("pure"), tmp_path_factory.mktemp("source")
    shutil.copytree(source, copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns("build"))
    wheel = build_wheel(copy, tmp_path_factory.mktemp("wheel"), CC="/bin/false")
    pip("install", "--no-deps", "--target", str(folder), str(wheel), cwd=folder)
    return folder


def run(folder: Path, cwd: Path, *arguments: str, **env: str) -> str:
    """Run Python with the package in `folder` and our dependencies.

    Without the module site no .pth file counts: an editable installation would lend the package what it lacks.
    """
    path = [str(folder), *(entry for entry in sys.path if entry.endswith("-packages"))]
    return python("-S", "-W", "error", *arguments, cwd=cwd, PYTHONPATH=os.pathsep.join(path), **env)


def doctor(folder: Path, cwd: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(run(folder, cwd, "-m", "edgellm", "doctor", "--json"))
    return report


def generate(folder: Path, cwd: Path, backend: str) -> list[Any]:
    """Return where edgellm comes from, the backend in use, and how many tokens it makes of a tiny model."""
    path = write_tiny(cwd / "tiny.gguf")
    code = (
        "import json, edgellm\n"
        f"with edgellm.Model({str(path)!r}, backend={backend!r}) as model:\n"
        "    generation = model.generate([1, 2, 3], max_tokens=4, temperature=0)\n"
        "    assert generation.text == ''\n"
        "    print(json.dumps([edgellm.__file__, model.info.backend, len(generation.token_ids)]))\n"
    )
    found: list[Any] = json.loads(run(folder, cwd, "-c", code))
    return found


def test_the_source_archive_has_all_that_a_build_and_the_tests_need(archive: Path) -> None:
    with tarfile.open(archive) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    tree = archive.parents[1]
    tracked = {
        str(path.relative_to(tree))
        for folder in FOLDERS
        for path in (tree / folder).rglob("*")
        if path.is_file() and path.suffix in {".py", ".c", ".h", ".toml", ".md", ".json", ".npz", ".typed"}
    }
    assert sorted(tracked - names) == []
    assert {"LICENSE", "README.md", "pyproject.toml", "setup.py", "MANIFEST.in", ".ci/run"} <= names
    assert not [name for name in names if name.endswith((".so", ".pyc", ".o", ".gguf"))]


def test_the_wheel_has_the_package_and_nothing_else(wheel: Path, source: Path) -> None:
    assert wheel.name.startswith(f"edgellm-{edgellm.__version__}-cp311-abi3-")
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
    modules = {str(path.relative_to(source)) for path in (source / "edgellm").rglob("*.py")}
    info = f"edgellm-{edgellm.__version__}.dist-info/"
    package = {name for name in names if not name.startswith(info)}
    assert package == modules | {"edgellm/py.typed", "edgellm/catalog.toml", "edgellm/_native.abi3.so"}
    assert f"{info}licenses/LICENSE" in names


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    info = f"edgellm-{edgellm.__version__}.dist-info/"
    with zipfile.ZipFile(wheel) as file:
        metadata = Parser().parsestr(file.read(info + "METADATA").decode())
        scripts = file.read(info + "entry_points.txt").decode()
    assert metadata["Version"] == edgellm.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert {"hf", "test", "bench"} <= set(metadata.get_all("Provides-Extra", []))
    assert "edgellm = edgellm.cli:main" in scripts


def test_the_installed_package_runs_natively(installed: Path, tmp_path: Path) -> None:
    report = doctor(installed, tmp_path)
    assert report["edgellm"] == edgellm.__version__
    assert report["backends"] == {name: {"problem": None} for name in report["backends"]}
    assert "generic" in report["cpu"]["available"]
    file, backend, n_tokens = generate(installed, tmp_path, "auto")
    assert Path(file).is_relative_to(installed)
    assert (backend, n_tokens) == ("native", 4)


def test_the_installed_package_knows_the_catalog(installed: Path, tmp_path: Path) -> None:
    listed = run(installed, tmp_path, "-m", "edgellm", "list", EDGELLM_HOME=str(tmp_path))
    assert [line.split()[0] for line in listed.splitlines()[1:]] == [entry.name for entry in edgellm.catalog.entries()]


def test_without_a_compiler_it_installs_and_says_what_is_missing(pure: Path, tmp_path: Path) -> None:
    assert not list(pure.rglob("_native*"))
    backends = doctor(pure, tmp_path)["backends"]
    assert "install a C compiler and reinstall edgellm" in backends["native"]["problem"]
    assert backends["reference"]["problem"] is None
    file, backend, n_tokens = generate(pure, tmp_path, "reference")
    assert Path(file).is_relative_to(pure)
    assert (backend, n_tokens) == ("reference", 4)
