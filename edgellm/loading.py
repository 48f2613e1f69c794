"""From a path to a running engine: the one way through all packages, taken once per model."""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgellm.architectures import build
from edgellm.backends import get_backend
from edgellm.backends.base import CompileOptions, KVType, Weight
from edgellm.cache.pages import GroupSpec, PageCache
from edgellm.cache.state import StatePool
from edgellm.engine.engine import Engine
from edgellm.engine.limits import SINKS, Overflow, shift_tokens, smallest_shifting_ctx
from edgellm.engine.memory import MemoryModel, MemoryPlan, logits_rows, plan_memory, scratch_width
from edgellm.engine.scheduler import Scheduler, Sizes
from edgellm.errors import ArgumentError
from edgellm.gguf import open_model
from edgellm.info import ModelInfo, describe
from edgellm.program.verify import verify
from edgellm.prompts import Prompts

if TYPE_CHECKING:
    from edgellm.gguf import ModelFile
    from edgellm.program import Program

_log = logging.getLogger("edgellm")


@dataclass(frozen=True, slots=True)
class Options:
    """How to load a model; everything checked."""

    n_ctx: int | None
    n_batch: int
    threads: int
    backend: str
    kv_type: KVType
    overflow: Overflow
    max_memory: int | None


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model ready to run."""

    info: ModelInfo
    engine: Engine
    prompts: Prompts


def load(path: str | os.PathLike[str], options: Options) -> Loaded:
    """Open, check, plan and compile.  Nothing stays open after an error."""
    with ExitStack() as opened:
        file = opened.enter_context(open_model(path))
        shapes = {name: tensor.shape for name, tensor in file.tensors.items()}
        program = build(file.metadata, shapes, options.n_ctx)
        verify(program, file.tensors)
        memory = _plan(program, file, options)
        shifts = options.overflow == "shift" and program.generates
        if shifts and memory.n_ctx < smallest_shifting_ctx():
            raise ArgumentError(
                f'overflow="shift" needs a context of at least {smallest_shifting_ctx()} tokens, not {memory.n_ctx}'
            )
        if shifts and not all(state.movable for state in program.states.values()):
            raise ArgumentError(
                f'overflow="shift" is not possible with {program.architecture} models: their keys depend on positions '
                "in a way that cannot be changed"
            )
        backend = get_backend(options.backend)
        executable = backend.compile(
            program,
            {name: Weight(t.dtype, t.shape, file.data(name)) for name, t in file.tensors.items()},
            CompileOptions(memory.n_pages, memory.n_batch, options.kv_type, options.threads, memory.n_slots),
        )
        opened.callback(executable.close)
        prompts = Prompts(file.metadata, file.name)
        info = describe(
            file,
            program,
            memory,
            backend=backend.name,
            isa=getattr(backend, "isa", None),
            threads=options.threads,
            kv_type=options.kv_type,
            has_tokenizer=prompts.has_vocabulary,
        )
        engine = Engine(
            executable,
            _scheduler(program, memory, options.overflow),
            before_step=file.check_unchanged,
            on_close=file.close,
        )
        opened.pop_all()
        return Loaded(info, engine, prompts)


def _plan(program: Program, file: ModelFile, options: Options) -> MemoryPlan:
    n_ctx = options.n_ctx
    if n_ctx is not None and n_ctx > program.n_ctx_train:
        _log.warning(
            "n_ctx=%d is more than the %d positions the model was trained for, which is used instead",
            n_ctx,
            program.n_ctx_train,
        )
        n_ctx = program.n_ctx_train
    weights = sum(tensor.nbytes for tensor in file.tensors.values())
    sizes = MemoryModel(program, weights, options.kv_type, scratch_width(program))
    return plan_memory(sizes, n_ctx=n_ctx, n_batch=options.n_batch, max_memory=options.max_memory)


def _scheduler(program: Program, memory: MemoryPlan, overflow: Overflow) -> Scheduler:
    groups = [GroupSpec(window, n) for window, n in zip(program.windows, memory.n_pages, strict=True)]
    sizes = Sizes(
        n_ctx=memory.n_ctx,
        n_batch=memory.n_batch,
        n_running=memory.n_running,
        logits_rows=logits_rows(program.n_vocab, memory.n_batch),
        sinks=SINKS,
        shift=shift_tokens(memory.n_ctx) if overflow == "shift" and program.generates else 0,
        whole=not program.causal,
    )
    states = StatePool(memory.n_slots) if memory.n_slots else None
    return Scheduler(PageCache(groups, states.has if states else None), sizes, states)
