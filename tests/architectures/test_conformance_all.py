"""Every architecture against logits measured with llama.cpp at float32, from the shared recipes and this repository's.

By default each recipe runs in a few of its variants.  All of them (some minutes)::

    EDGELLM_CONFORMANCE=all python -m pytest tests/architectures/test_conformance_all.py
"""

from __future__ import annotations

import os
import zlib
from itertools import product

import pytest

from edgellm.architectures import build, names
from edgellm.backends.base import Backend
from edgellm.errors import UnsupportedModelError
from edgellm.program.verify import verify
from tests.support import conformance
from tests.support.conformance import SHARED
from tests.support.run import options_for, run_tokens

UNSUPPORTED = {
    "deepseek4-moe": "attention to keys compressed over many tokens",
    "qwen4exp-moe": "embeddings of hashed runs of tokens",
}
"""Recipe → what keeps it from running."""

ENCODERS = {"bert", "nomic-bert", "jina-bert-v2", "modern-bert", "gemma-embedding"}
"""Architectures without logits: see test_encoders.py."""

RECIPES = sorted({*(path.stem for path in (SHARED / "recipes").glob("*.json")), *conformance.NAMES})
SUPPORTED = [name for name in RECIPES if name not in UNSUPPORTED]
WHOLE = {"dream-dense", "llada-dense", "llada-moe-moe", "rnd1-moe"}
"""Models whose tokens see what follows, so that all come at once."""
VARIANTS = list(product((False, True), (None, 1)))
"""Lean or full keys, all rows at once or one by one."""


def _cases() -> list[tuple[str, bool, int | None, str]]:
    """Return recipe, lean, chunk and backend of each case."""
    cases = []
    for name in SUPPORTED:
        turn = zlib.crc32(name.encode()) % len(VARIANTS) & ~(name in WHOLE)
        for backend in ("reference", "native"):
            if os.environ.get("EDGELLM_CONFORMANCE") == "all":
                chosen = VARIANTS
            else:  # the full keys or the lean, at once or one by one; and the opposite of both on the faster backend
                chosen = [VARIANTS[turn]] if backend == "reference" else [VARIANTS[turn], VARIANTS[3 - turn]]
            cases += [(name, lean, chunk, backend) for lean, chunk in chosen if not (chunk and name in WHOLE)]
    return cases


def _id(case: tuple[str, bool, int | None, str]) -> str:
    name, lean, chunk, backend = case
    return f"{name}-{'lean' if lean else 'full'}-{'steps' if chunk else 'batch'}-{backend}"


def test_the_recipes_are_there() -> None:
    conformance.need_shared()
    assert len(RECIPES) >= 132
    assert set(UNSUPPORTED) <= set(RECIPES)


@pytest.mark.parametrize("case", _cases(), ids=_id)
def test_logits_match_llama_cpp(case: tuple[str, bool, int | None, str], backends: dict[str, Backend]) -> None:
    name, lean, chunk, backend = case
    folder = conformance.folder_of(name)
    model = conformance.recipe(name, lean=lean, folder=folder)
    weights = model.weights()
    program = build(model.metadata, model.tensors)
    verify(program, weights)
    executable = backends[backend].compile(program, weights, options_for(program, conformance.N_TOKENS))
    logits = run_tokens(executable, program, conformance.tokens(), chunk)
    executable.close()
    assert conformance.nmse(logits, conformance.golden(name, folder)) < 1e-8


@pytest.mark.parametrize("name", sorted(set(UNSUPPORTED) & set(RECIPES)))
def test_what_is_not_supported_is_refused(name: str) -> None:
    model = conformance.recipe(name, folder=SHARED)
    with pytest.raises(UnsupportedModelError, match=r"general\.architecture|expert_count"):
        build(model.metadata, model.tensors)


def test_every_known_architecture_has_a_recipe() -> None:
    conformance.need_shared()
    recipes = [conformance.recipe(name, folder=conformance.folder_of(name)) for name in RECIPES]
    assert set(names()) - {recipe.metadata["general.architecture"] for recipe in recipes} == ENCODERS
