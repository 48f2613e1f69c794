"""What is known about a loaded model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgellm.engine.memory import MemoryPlan
    from edgellm.gguf import ModelFile
    from edgellm.program import Pooling, Program


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Facts about a loaded model.  Texts are as the file has them, so escape them before they reach a terminal."""

    name: str
    """``general.name``, or the file's name without one."""
    architecture: str
    path: str
    file_bytes: int
    """Size of the file, or of all shards."""
    licence: str | None
    quantization: str
    """The tensor type that holds most of the parameters."""
    tensor_types: Mapping[str, int]
    """How many tensors there are of each type."""
    n_params: int
    generates: bool
    """Whether the model scores tokens; an encoder only embeds."""
    causal: bool
    """Whether tokens see only what is before them; diffusion models and encoders see both sides."""
    pooling: Pooling | None
    """How the file says that the vectors of a text's tokens become one."""
    n_vocab: int
    """Ids the model scores; its tokenizer may know fewer."""
    n_embd: int
    n_embd_out: int | None
    """Width of what `embed` returns; None where the model's architecture declares no embeddings."""
    n_layer: int | None
    n_head: int | None
    """Query heads; where layers differ, the most, as for the next two."""
    n_head_kv: int | None
    n_ff: int | None
    n_ctx: int
    """The most tokens of one sequence."""
    n_ctx_train: int
    n_batch: int
    """The most tokens of one step."""
    backend: str
    isa: str | None
    """The instruction set of the kernels, where the backend has a choice."""
    threads: int
    kv_type: str
    memory: MemoryPlan
    has_tokenizer: bool
    has_chat_template: bool

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of keys and values that one token takes in all layers."""
        return self.memory.kv_per_token


def describe(
    file: ModelFile,
    program: Program,
    memory: MemoryPlan,
    *,
    backend: str,
    isa: str | None,
    threads: int,
    kv_type: str,
    has_tokenizer: bool,
) -> ModelInfo:
    """Collect the facts; nothing is taken from the file's name but a name for want of another."""
    metadata, architecture = file.metadata, program.architecture
    elements: dict[str, int] = {}
    types: dict[str, int] = {}
    for tensor in file.tensors.values():
        kind = tensor.dtype.name
        elements[kind] = elements.get(kind, 0) + tensor.n_elements
        types[kind] = types.get(kind, 0) + 1
    n_head = _size(metadata, f"{architecture}.attention.head_count")
    return ModelInfo(
        name=_text(metadata, "general.name") or _stem(file.name),
        architecture=architecture,
        path=file.name,
        file_bytes=file.nbytes,
        licence=_text(metadata, "general.license"),
        quantization=max(elements, key=lambda kind: elements[kind], default="none"),
        tensor_types=types,
        n_params=sum(elements.values()),
        generates=program.generates,
        causal=program.causal,
        pooling=program.pooling,
        n_vocab=program.n_vocab,
        n_embd=program.n_embd,
        n_embd_out=None if program.embedding is None else program.widths[program.embedding],
        n_layer=_size(metadata, f"{architecture}.block_count"),
        n_head=n_head,
        n_head_kv=_size(metadata, f"{architecture}.attention.head_count_kv") or n_head,
        n_ff=_size(metadata, f"{architecture}.feed_forward_length"),
        n_ctx=memory.n_ctx,
        n_ctx_train=program.n_ctx_train,
        n_batch=memory.n_batch,
        backend=backend,
        isa=isa,
        threads=threads,
        kv_type=kv_type,
        memory=memory,
        has_tokenizer=has_tokenizer,
        has_chat_template=_text(metadata, "tokenizer.chat_template") is not None,
    )


def _text(metadata: Mapping[str, Any], key: str) -> str | None:
    value = metadata.get(key)
    return value if isinstance(value, str) else None


def _size(metadata: Mapping[str, Any], key: str) -> int | None:
    """A count, the largest one where it is given per layer."""
    value = metadata.get(key)
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = max(value, default=None)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _stem(path: str) -> str:
    return path.replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".gguf")
