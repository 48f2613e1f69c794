"""Builds edgellm._native from csrc/: the kernels once for each instruction set, everything else once.

Where it cannot be built the installation still succeeds: EdgeLLM then runs on a slower backend, and
`edgellm doctor` says so.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
CORE = [
    *("exec", "exec_check", "exec_check_batch", "exec_ops", "exec_attention", "exec_experts", "exec_mixture"),
    *("exec_recurrent", "exec_take", "pool", "trig", "cpu", "bandwidth", "choose", "pymodule", "pybuffers", "pytools"),
]
KERNELS = ["matmul", "rows", "attention", "attention_q8", "experts", "recurrent", "choose", "table"]
HEADERS = [str(p.relative_to(ROOT)) for p in sorted((ROOT / "csrc").rglob("*.h"))]
FLAGS = ["-std=c11", "-O3", "-g0", "-fvisibility=hidden", "-ffp-contract=off", "-fno-math-errno", "-Wall", "-Wextra"]
AVX512 = [f"-mavx512{part}" for part in ("f", "bw", "dq", "vl", "vnni", "vbmi")]
X86 = {
    "avx512": [*AVX512, "-mavx2", "-mfma", "-mf16c"],
    "avx2": ["-mavx2", "-mfma", "-mf16c"],
}
ARM = {"neon": ["-march=armv8.2-a+dotprod+fp16"]}
# Vectors are plain arrays there: GCC takes them apart into scalars, which costs most of its time and gains nothing
# outside of the matrix products.
GENERIC = {part: ["-O2"] if part == "matmul" else ["-O2", "-fno-tree-sra"] for part in KERNELS}


@dataclass(frozen=True)
class Unit:
    """One source file and how it is compiled."""

    source: str
    isa: str = "core"
    flags: list[str] = field(default_factory=list)
    macros: list[tuple[str, str | None]] = field(default_factory=list)


def instruction_sets() -> dict[str, list[str]]:
    """Return the kernel variants for the processor family built for, with their compiler flags."""
    machine = platform.machine().lower()
    if machine in {"x86_64", "amd64"}:
        return {**X86, "generic": []}
    if machine in {"aarch64", "arm64"}:
        return {**ARM, "generic": []}
    return {"generic": []}


def units() -> Iterator[Unit]:
    """Yield all there is to compile, what takes longest first."""
    for part in KERNELS:
        for isa, flags in instruction_sets().items():
            extra = GENERIC[part] if isa == "generic" else []
            macros = [(f"EDGE_ISA_{isa}", None), ("EDGE_ISA_NAME", isa)]
            yield Unit(f"csrc/kernels/{part}.c", isa, [*FLAGS, *flags, *extra], macros)
    for part in CORE:
        yield Unit(f"csrc/{part}.c", flags=FLAGS)


class BuildNative(build_ext):
    """Compiles on all cores, and only what has changed; a failure leaves a pure Python installation."""

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:
            self.extensions = []
            print(
                f"edgellm: the native core could not be built ({error}).\n"
                "edgellm: installing without it: models will run on a slower backend.\n"
                "edgellm: install a C11 compiler (gcc or clang) and reinstall to get the fast one.",
                file=sys.stderr,
            )

    def build_extension(self, ext: Extension) -> None:
        folder = self.object_folder()
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            ext.extra_objects = list(pool.map(lambda unit: self.compile(unit, ext, folder), units()))
        super().build_extension(ext)

    def object_folder(self) -> Path:
        """Return where objects lie: one folder for all that depends on the compiler and not on the sources.

        It is not the temporary folder, which an editable installation gets anew each time.
        """
        command = [*getattr(self.compiler, "compiler_so", []), *self.compiler.include_dirs, *map(repr, units())]
        key = hashlib.sha256("\n".join(map(str, command)).encode()).hexdigest()[:12]
        return ROOT / "build" / "native" / key

    def compile(self, unit: Unit, ext: Extension, folder: Path) -> str:
        """Return the object of one unit, compiled unless it is newer than its source and every header."""
        output = folder / unit.isa
        target = Path(self.compiler.object_filenames([unit.source], output_dir=str(output))[0])
        newest = max((ROOT / path).stat().st_mtime for path in (unit.source, *HEADERS))
        if self.force or not target.is_file() or target.stat().st_mtime <= newest:
            target.parent.mkdir(parents=True, exist_ok=True)
            self.compiler.compile(
                [unit.source],
                output_dir=str(output),
                macros=unit.macros,
                include_dirs=ext.include_dirs,
                extra_postargs=unit.flags,
            )
        return str(target)


class BuildPython(build_py):
    """Puts the model catalog beside the modules, where an installed EdgeLLM looks for it."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib) / "edgellm" / "catalog.toml"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / "models" / "catalog.toml", target)


setup(
    ext_modules=[
        Extension(
            "edgellm._native",
            sources=[],  # build_extension compiles them
            depends=[*HEADERS, *sorted({unit.source for unit in units()})],
            extra_link_args=["-pthread"],
            libraries=["m"],
            py_limited_api=True,
        )
    ],
    cmdclass={"build_ext": BuildNative, "build_py": BuildPython},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
