"""What a model file needs and whether it can run here: told from its header, no weights read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from edgellm.architectures import build
from edgellm.backends import get_backend
from edgellm.backends.base import CompileOptions, KVType, Weight
from edgellm.engine.memory import MemoryModel, MemoryPlan
from edgellm.errors import EdgeLLMError
from edgellm.gguf import ModelFile
from edgellm.program import Program
from edgellm.program.plan import plan as plan_buffers
from edgellm.program.verify import verify
from edgellm.tokenizer import load_tokenizer

_CONTEXTS = (2048, 4096, 8192, 16384, 32768, 65536, 131072)
T = TypeVar("T")


def memory_plans(file: ModelFile, *, kv_type: KVType = "f16", n_batch: int = 512) -> list[MemoryPlan]:
    """Return what the model takes with contexts of usual sizes, up to the one it was trained for.

    Raises UnsupportedModelError or ModelFormatError where the architecture is unknown or its metadata wrong.
    """
    program = _program(file)
    width = sum(plan_buffers(program).widths) + max(program.widths[op.out] for op in program.ops[:-1])
    model = MemoryModel(program, sum(t.nbytes for t in file.tensors.values()), kv_type, width)
    trained = program.n_ctx_train
    return [model.plan(n, n_batch) for n in (*(n for n in _CONTEXTS if n < trained), trained)]


def problems(file: ModelFile) -> list[str]:
    """Return, one by one, what keeps the model from running here; nothing means that it does."""
    found: list[str] = []
    program = _attempt(lambda: _program(file), found)
    if program is not None:
        faults: list[str] = []
        _attempt(lambda: verify(program, file.tensors), faults)
        # One error lists them all.
        found += (part for fault in faults for part in fault.split("; "))
        if not faults:
            _attempt(lambda: _compile(program, file), found)
    if has_vocabulary(file):
        _attempt(lambda: load_tokenizer(file.metadata, file.name), found)
    return found


def has_vocabulary(file: ModelFile) -> bool:
    """Return whether the file has a tokenizer; one without takes and gives token ids only."""
    return file.metadata.get_str("tokenizer.ggml.model", "no_vocab") != "no_vocab"


def _program(file: ModelFile) -> Program:
    return build(file.metadata, {name: tensor.shape for name, tensor in file.tensors.items()})


def _compile(program: Program, file: ModelFile) -> None:
    """Let the backend refuse what it lacks."""
    backend = get_backend()
    if backend.name == "reference":
        return  # It takes nearly everything, but would read all weights to say so.
    weights = {name: Weight(t.dtype, t.shape, file.data(name)) for name, t in file.tensors.items()}
    backend.compile(program, weights, CompileOptions((1,) * len(program.windows), max_rows=1)).close()


def _attempt(step: Callable[[], T], found: list[str]) -> T | None:
    try:
        return step()
    except EdgeLLMError as error:
        found.append(str(error))
        return None
