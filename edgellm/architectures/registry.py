"""The table of architectures: GGUF's ``general.architecture`` → the function that declares the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from edgellm.architectures.params import Params
from edgellm.errors import ArgumentError, ModelFormatError, UnsupportedModelError
from edgellm.program import Program, ProgramBuilder, Value

Architecture = Callable[[Params, ProgramBuilder], Value]
"""Declares a model's ops with the builder and returns its logits."""

_TABLE: dict[str, Architecture] = {}


def register(*names: str) -> Callable[[Architecture], Architecture]:
    """Enter the decorated function under each of `names`.  Raises ArgumentError for a name that is taken."""

    def enter(architecture: Architecture) -> Architecture:
        for name in names:
            if name in _TABLE:
                raise ArgumentError(f"the architecture {name!r} is registered already")
            _TABLE[name] = architecture
        return architecture

    return enter


def names() -> tuple[str, ...]:
    """Return the known architectures in alphabetical order."""
    return tuple(sorted(_TABLE))


def build(metadata: Mapping[str, Any], tensors: Mapping[str, tuple[int, ...]]) -> Program:
    """Return the program of the model that `metadata` and the tensors' shapes (fastest axis first) describe.

    Raises UnsupportedModelError for an architecture or feature that is not here, and ModelFormatError
    for metadata that is missing or makes no sense.  The tensors' own shapes are `verify`'s business.
    """
    name = metadata.get("general.architecture")
    if name is None:
        raise ModelFormatError("the metadata key general.architecture is missing")
    if not isinstance(name, str):
        raise ModelFormatError(f"general.architecture is a {type(name).__name__}, must be a string")
    architecture = _TABLE.get(name)
    if architecture is None:
        raise UnsupportedModelError(
            f"general.architecture = {name[:60]!r} is not supported; the known ones are {', '.join(names())}"
        )
    params = Params(name, metadata, tensors)
    params.refuse_experts()
    params.refuse_non_causal()
    builder = ProgramBuilder(name, tensors)
    logits = architecture(params, builder)
    return builder.build(logits, n_embd=params.n_embd, n_ctx_train=params.n_ctx_train)
