"""Who may import whom, and what `import edgellm` may load."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "edgellm"
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}

BASE = ("errors", "dtypes", "config")
"""What every module may import."""

ALLOWED: dict[str, tuple[str, ...]] = {
    "gguf": (),
    "program": (),
    "sampling": (),
    "sampling.native": ("sampling", "_native"),
    "cache": ("backends.base",),
    "cache.pages": ("cache.pool",),
    "cache.pool": (),
    "tokenizer": (),
    "chat": (),
    "structured": (),
    "architectures": ("program",),
    "backends": ("program",),
    "backends.native": ("backends", "program", "_native"),
    "engine": ("program", "backends.base", "cache", "sampling", "structured"),
    "engine.scheduler": ("engine.request", "cache.pages", "cache.state"),
}
"""Part of edgellm → the other parts it may import.  The most exact entry counts; others in its package come free."""

PUBLIC_ONLY = ("cli", "server")
"""Parts that see what users see: nothing from the table, and no C."""

HEAVY = (
    "click",
    "gguf",
    "huggingface_hub",
    "jinja2",
    "llguidance",
    "llvmlite",
    "numba",
    "numpy",
    "prompt_toolkit",
    "rich",
    "sentencepiece",
    "tokenizers",
)

ARCHITECTURES = sorted(name for name in MODULES if name.startswith("edgellm.architectures."))
_SHARED = ("params", "metadata", "registry", "rope", "style", "ends", "attention", "layer", "blocks")
_SHARED += ("encoders", "hyper", "kda", "mixers", "moe", "mla", "altup", "xielu")
"""What families are made of."""
FAMILIES = [name for name in ARCHITECTURES if name.rpartition(".")[2] not in _SHARED]


def imports(module: str) -> Iterator[str]:
    """Yield the full names of all modules and names that `module` imports, wherever in it."""
    path = MODULES[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*parents, *filter(None, [node.module])])
            yield from (f"{source}.{alias.name}" for alias in node.names)


def within(name: str, part: str) -> bool:
    return name == f"edgellm.{part}" or name.startswith(f"edgellm.{part}.")


def allowed(module: str, imported: str) -> bool:
    if any(within(imported, part) for part in BASE):
        return True
    top = module.split(".")[1]
    if top in PUBLIC_ONLY:
        return not any(within(imported, part) for part in ("_native", *ALLOWED))
    rules = [part for part in ALLOWED if within(module, part)]
    if not rules:
        return top not in {part.split(".")[0] for part in ALLOWED}
    rule = max(rules, key=len)
    if rule == top and within(imported, top):
        return True
    return any(within(imported, part) for part in (rule, *ALLOWED[rule]))


def test_the_table_speaks_of_modules_that_are_there() -> None:
    assert "edgellm.program.ops" in MODULES
    assert len(FAMILIES) >= 50
    assert {f"edgellm.architectures.{name}" for name in _SHARED} <= set(ARCHITECTURES)


@pytest.mark.parametrize("module", MODULES)
def test_modules_import_only_what_their_layer_may(module: str) -> None:
    own = [name for name in imports(module) if name.split(".")[0] == "edgellm"]
    if len(module.split(".")) > 1:
        assert [name for name in own if not allowed(module, name)] == []


def test_the_rules_bite() -> None:
    assert not allowed("edgellm.gguf.reader", "edgellm.program.Program")
    assert not allowed("edgellm.program.verify", "edgellm.backends.base")
    assert not allowed("edgellm.backends.reference", "edgellm._native")
    assert not allowed("edgellm.engine.scheduler", "edgellm.engine.runner.Runner")
    assert not allowed("edgellm.cache.pages", "edgellm.backends.base.PAGE")
    assert not allowed("edgellm.cli.chat", "edgellm.engine.Engine")
    assert not allowed("edgellm.tokenizer.load", "edgellm.gguf.Reader")
    assert allowed("edgellm.engine.runner", "edgellm.backends.base.Batch")
    assert allowed("edgellm.cli.chat", "edgellm.Model")
    assert allowed("edgellm.program.verify", "edgellm.dtypes.DType")


@pytest.mark.parametrize("module", FAMILIES)
def test_an_architecture_only_declares(module: str) -> None:
    outside = [name for name in imports(module) if name.split(".")[0] not in ("edgellm", "__future__")]
    assert outside == []
    source = MODULES[module].read_text()
    tree = ast.parse(source)
    assert not any(isinstance(node, ast.MatMult) for node in ast.walk(tree))
    assert not any(isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.While)) for node in ast.walk(tree))
    assert len(source.splitlines()) <= 80


def test_architectures_are_small_files() -> None:
    sizes = sorted(len(MODULES[name].read_text().splitlines()) for name in ARCHITECTURES)
    assert sizes[len(sizes) // 2] <= 60
    assert sizes[-1] <= 200


def test_there_are_few_kinds_of_ops() -> None:
    from edgellm.program import Op

    assert len(get_args(Op)) <= 32


def test_architectures_need_no_numpy() -> None:
    code = "import sys, edgellm.architectures; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_import_edgellm_is_light() -> None:
    code = f"import sys, edgellm; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")
