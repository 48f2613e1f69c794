"""Builds edgellm._native from csrc/: the kernels once for each instruction set, everything else once.

Where it cannot be built the installation still succeeds: EdgeLLM then runs on its NumPy backend, and
`edgellm doctor` says so.
"""

from __future__ import annotations

import platform
import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
CORE = ["pymodule", "exec", "exec_check", "exec_ops", "exec_attention", "pool", "trig", "cpu", "bandwidth"]
KERNELS = ["matmul", "rows", "attention", "table"]
FLAGS = ["-std=c11", "-O3", "-fvisibility=hidden", "-ffp-contract=off", "-fno-math-errno", "-Wall", "-Wextra"]
X86 = {
    "avx512": ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni", "-mavx2", "-mfma", "-mf16c"],
    "avx2": ["-mavx2", "-mfma", "-mf16c"],
}
ARM = {"neon": ["-march=armv8.2-a+dotprod+fp16"]}


def instruction_sets() -> dict[str, list[str]]:
    """Return the kernel variants for the processor family built for, with their compiler flags."""
    machine = platform.machine().lower()
    if machine in {"x86_64", "amd64"}:
        return {**X86, "generic": []}
    if machine in {"aarch64", "arm64"}:
        return {**ARM, "generic": []}
    return {"generic": []}


class BuildNative(build_ext):
    """Compiles each kernel source once per instruction set; a failure leaves a pure Python installation."""

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:
            self.extensions = []
            print(
                f"edgellm: the native core could not be built ({error}).\n"
                "edgellm: installing without it: models will run on the slow NumPy backend ('reference').\n"
                "edgellm: install a C11 compiler (gcc or clang) and reinstall to get the fast one.",
                file=sys.stderr,
            )

    def build_extension(self, ext: Extension) -> None:
        objects = []
        for name, flags in instruction_sets().items():
            objects += self.compiler.compile(
                [f"csrc/kernels/{part}.c" for part in KERNELS],
                output_dir=str(Path(self.build_temp) / name),
                macros=[(f"EDGE_ISA_{name}", None), ("EDGE_ISA_NAME", name)],
                extra_postargs=FLAGS + flags,
                depends=ext.depends,
            )
        ext.extra_objects = objects
        super().build_extension(ext)


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
            sources=[f"csrc/{part}.c" for part in CORE],
            depends=[str(p.relative_to(ROOT)) for p in sorted((ROOT / "csrc").rglob("*.h"))],
            extra_compile_args=FLAGS,
            extra_link_args=["-pthread"],
            libraries=["m"],
            py_limited_api=True,
        )
    ],
    cmdclass={"build_ext": BuildNative, "build_py": BuildPython},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
