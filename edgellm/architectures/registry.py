"""The table of architectures: GGUF's ``general.architecture`` → the function that declares the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from edgellm.architectures.params import Params
from edgellm.errors import ArgumentError, ModelFormatError, UnsupportedModelError
from edgellm.program import Program, ProgramBuilder, Value

Architecture = Callable[[Params, ProgramBuilder], Value]
"""Declares a model's ops with the builder and returns its logits."""


@dataclass(frozen=True, slots=True)
class _Row:
    build: Architecture
    experts: bool
    causal: bool


_TABLE: dict[str, _Row] = {}


def register(*names: str, experts: bool = False, causal: bool = True) -> Callable[[Architecture], Architecture]:
    """Enter the decorated function under each of `names`.  Raises ArgumentError for a name that is taken.

    `experts` says that it builds mixtures of experts, too; files that have them are refused otherwise.  Those whose
    tokens see what follows are not `causal`.
    """

    def enter(architecture: Architecture) -> Architecture:
        for name in names:
            if name in _TABLE:
                raise ArgumentError(f"the architecture {name!r} is registered already")
            _TABLE[name] = _Row(architecture, experts, causal)
        return architecture

    return enter


def register_architecture(name: str, build: Architecture, *, experts: bool = False, causal: bool = True) -> None:
    """Teach EdgeLLM an architecture: `build` declares models whose ``general.architecture`` is `name`.

    `build` takes a `Params` (the file's metadata) and a `ProgramBuilder`, and returns the logits.  `experts` says that
    it builds mixtures of experts, too.  Where tokens see what follows it is not `causal`; an encoder returns what it
    gave to `ProgramBuilder.embedding` in the place of logits.  Raises ArgumentError for a name that is taken.
    """
    register(name, experts=experts, causal=causal)(build)


def names() -> tuple[str, ...]:
    """Return the known architectures in alphabetical order."""
    return tuple(sorted(_TABLE))


def build(metadata: Mapping[str, Any], tensors: Mapping[str, tuple[int, ...]], n_ctx: int | None = None) -> Program:
    """Return the program of the model that `metadata` and the tensors' shapes (fastest axis first) describe.

    A few models rotate differently where contexts are long; `n_ctx` says how many positions will be used (None: all
    that the model was trained for).

    Raises UnsupportedModelError for an architecture or feature that is not here, and ModelFormatError
    for metadata that is missing or makes no sense.  The tensors' own shapes are `verify`'s business.
    """
    name = metadata.get("general.architecture")
    if name is None:
        raise ModelFormatError("the metadata key general.architecture is missing")
    if not isinstance(name, str):
        raise ModelFormatError(f"general.architecture is a {type(name).__name__}, must be a string")
    row = _TABLE.get(name)
    if row is None:
        near = get_close_matches(name[:60], _TABLE, 1)
        hint = f"; the nearest of the {len(_TABLE)} known ones is {near[0]!r}" if near else ""
        raise UnsupportedModelError(f"general.architecture = {name[:60]!r} is not supported{hint}")
    params = Params(name, metadata, tensors, n_ctx)
    if not row.experts:
        params.refuse_experts()
    if row.causal:
        params.refuse_non_causal()
    builder = ProgramBuilder(name, tensors)
    result = row.build(params, builder)
    return builder.build(
        result,
        n_embd=params.n_embd,
        n_ctx_train=params.n_ctx_train,
        n_vocab=params.n_vocab if result.name == builder.embedded else None,
        pooling=params.pooling,
    )
