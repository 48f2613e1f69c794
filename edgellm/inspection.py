"""What is in a model file, what it needs, and whether it can run here: told from its head, no weights read."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from os import PathLike
from typing import Any, TypeVar

from edgellm.architectures import build
from edgellm.backends import get_backend
from edgellm.backends.base import CompileOptions, KVType, Weight
from edgellm.engine.memory import MemoryModel, MemoryPlan, scratch_width
from edgellm.errors import EdgeLLMError
from edgellm.gguf import ModelFile, open_model
from edgellm.program import Program
from edgellm.program.verify import verify
from edgellm.tokenizer import Tokenizer, load_tokenizer

_CONTEXTS = (2048, 4096, 8192, 16384, 32768, 65536, 131072)
_TEXT_LIMIT = 80
_ARRAY_ITEMS = 5
T = TypeVar("T")


def describe(path: str | PathLike[str]) -> dict[str, Any]:
    """Return what the model file `path` holds, as plain values fit for JSON.

    Long texts are cut; an array is its type, its count and its first elements.  ``memory`` has an ``error`` instead
    of an estimate where the model is one that cannot run.  ``warnings`` are about the vocabulary.  Texts are the
    file's: escape them before a terminal.  Raises what opening a damaged file raises.
    """
    with open_model(path) as file:
        metadata = file.metadata
        return {
            "file": file.name,
            "bytes": file.nbytes,
            "metadata": {key: _value(file, key) for key in metadata},
            "metadata_types": {key: str(metadata.type_of(key)) for key in metadata},
            "tensors": [
                {"name": t.name, "shape": list(t.shape), "type": str(t.dtype), "bytes": t.nbytes}
                for t in file.tensors.values()
            ],
            "tensor_types": _tensor_types(file),
            "memory": _memory(file),
            "warnings": _warnings(file),
        }


def problems(path: str | PathLike[str]) -> list[str]:
    """Return, one by one, what keeps the model from running here; nothing means that it does.

    Raises what opening a damaged file raises.
    """
    found: list[str] = []
    with open_model(path) as file:
        program = _attempt(lambda: _program(file), found)
        if program is not None:
            faults: list[str] = []
            _attempt(lambda: verify(program, file.tensors), faults)
            found += (part for fault in faults for part in fault.split("; "))  # One error lists them all.
            if not faults:
                _attempt(lambda: _compile(program, file), found)
        _attempt(lambda: _tokenizer(file), found)
    return found


def memory_plans(file: ModelFile, *, kv_type: KVType = "f16", n_batch: int = 512) -> list[MemoryPlan]:
    """Return what the model takes with contexts of usual sizes, up to the one it was trained for.

    Raises UnsupportedModelError or ModelFormatError where the architecture is unknown or its metadata wrong.
    """
    program = _program(file)
    model = MemoryModel(program, _weight_bytes(file), kv_type, scratch_width(program))
    trained = program.n_ctx_train
    return [model.plan(n, n_batch) for n in (*(n for n in _CONTEXTS if n < trained), trained)]


def _program(file: ModelFile) -> Program:
    return build(file.metadata, {name: tensor.shape for name, tensor in file.tensors.items()})


def _tokenizer(file: ModelFile) -> Tokenizer | None:
    if file.metadata.get("tokenizer.ggml.model", "no_vocab") == "no_vocab":
        return None
    return load_tokenizer(file.metadata, file.name)


def _warnings(file: ModelFile) -> list[str]:
    tokenizer = _attempt(lambda: _tokenizer(file), [])
    return [] if tokenizer is None else list(tokenizer.warnings)


def _weight_bytes(file: ModelFile) -> int:
    return sum(tensor.nbytes for tensor in file.tensors.values())


def _compile(program: Program, file: ModelFile) -> None:
    """Let the backend refuse what it lacks."""
    backend = get_backend()
    if backend.name == "reference":
        return  # It takes nearly everything, but would read all weights to say so.
    weights = {name: Weight(t.dtype, t.shape, file.data(name)) for name, t in file.tensors.items()}
    backend.compile(program, weights, CompileOptions((1,) * len(program.windows), max_rows=1, n_slots=1)).close()


def _attempt(step: Callable[[], T], found: list[str]) -> T | None:
    try:
        return step()
    except EdgeLLMError as error:
        found.append(str(error))
        return None


def _value(file: ModelFile, key: str) -> Any:
    try:
        value = file.metadata[key]
        if isinstance(value, (str, bool, int, float)):
            return _scalar(value)
        return {"count": len(value), "first": [_scalar(item) for item in value[:_ARRAY_ITEMS]]}
    except EdgeLLMError as error:  # A text that is not UTF-8: everything else can still be shown.
        return f"({error})"


def _scalar(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _TEXT_LIMIT:
        return f"{value[:_TEXT_LIMIT]}… ({len(value)} characters)"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such numbers.
    return value


def _tensor_types(file: ModelFile) -> dict[str, dict[str, int]]:
    """Return per type, the largest share first, how many tensors, elements and bytes there are."""
    tensors, elements, n_bytes = Counter[str](), Counter[str](), Counter[str]()
    for t in file.tensors.values():
        tensors[str(t.dtype)] += 1
        elements[str(t.dtype)] += t.n_elements
        n_bytes[str(t.dtype)] += t.nbytes
    return {
        name: {"tensors": tensors[name], "parameters": elements[name], "bytes": total}
        for name, total in n_bytes.most_common()
    }


def _memory(file: ModelFile) -> dict[str, Any]:
    memory: dict[str, Any] = {"weights_bytes": _weight_bytes(file)}
    try:
        plans = memory_plans(file)
    except EdgeLLMError as error:
        return {**memory, "error": str(error)}
    return {
        **memory,
        "kv_bytes_per_token": plans[0].kv_per_token,
        "state_bytes": plans[0].states,
        "contexts": [{"n_ctx": p.n_ctx, "kv_bytes": p.kv, "total_bytes": p.total} for p in plans],
    }
