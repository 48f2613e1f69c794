"""Which families can be converted, each a table: config.json → metadata, the weights' names → GGUF's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edgellm.errors import ModelFormatError, UnsupportedModelError


@dataclass(frozen=True, slots=True)
class Family:
    """One family.  Keys are without the architecture's prefix, ``{i}`` in names stands for a layer's number."""

    architecture: str
    model_types: tuple[str, ...]
    """``model_type`` of config.json."""
    sizes: Mapping[str, str]
    """Metadata key → config key of a whole number."""
    numbers: Mapping[str, str] = field(default_factory=dict)
    """The same for other numbers."""
    tensors: Mapping[str, str] = field(default_factory=dict)
    """Weights → GGUF name, both without ``.weight`` and ``.bias``."""
    prefixes: tuple[str, ...] = ()
    """What may stand before the weights' names."""
    ignored: tuple[str, ...] = ()
    """Expressions for weights that play no part."""
    required: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Config key → the values that GGUF models can be of, the first for files without the key."""

    def metadata(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the figures of the model.  Raises ModelFormatError, UnsupportedModelError."""
        for key, allowed in self.required.items():
            value = config.get(key, allowed[0])
            if value not in allowed:
                raise UnsupportedModelError(
                    f"config.json: {key} = {str(value)[:60]!r}; {self.architecture} files are of {allowed[0]!r}"
                )
        found: dict[str, Any] = {key: _number(config, name, int) for key, name in self.sizes.items()}
        found |= {key: float(_number(config, name, (int, float))) for key, name in self.numbers.items()}
        return {f"{self.architecture}.{key}": value for key, value in found.items()}

    def rename(self, name: str) -> str | None:
        """Return a weight's GGUF name, None for one that plays no part.  Raises UnsupportedModelError."""
        for prefix in self.prefixes:
            name = name.removeprefix(prefix)
        if any(re.fullmatch(pattern, name) for pattern in self.ignored):
            return None
        name = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))
        stem, _, part = name.rpartition(".")
        number = re.search(r"\.(\d+)(?=\.|$)", stem)
        general = stem if number is None else f"{stem[: number.start(1)]}{{i}}{stem[number.end(1) :]}"
        target = self.tensors.get(general)
        if target is None or part not in ("weight", "bias"):
            raise UnsupportedModelError(f"the weight {name[:80]!r} is none that {self.architecture} models have")
        return f"{target.replace('{i}', number[1] if number else '')}.{part}"


def family_of(config: Mapping[str, Any]) -> Family:
    """Return the family of a config.json.  Raises UnsupportedModelError."""
    kind = config.get("model_type")
    for family in FAMILIES:
        if kind in family.model_types:
            return family
    known = ", ".join(kind for family in FAMILIES for kind in family.model_types)
    raise UnsupportedModelError(f"config.json: model_type = {kind!r:.60} cannot be converted; {known} can")


def _number(config: Mapping[str, Any], name: str, kind: Any) -> Any:
    value = config.get(name)
    if isinstance(value, bool) or not isinstance(value, kind) or not 0 <= value < 2**31:
        raise ModelFormatError(f"config.json: {name} = {value!r:.60}: must be a number")
    return value


BERT = Family(
    "bert",
    ("bert",),
    {
        "context_length": "max_position_embeddings",
        "embedding_length": "hidden_size",
        "feed_forward_length": "intermediate_size",
        "block_count": "num_hidden_layers",
        "attention.head_count": "num_attention_heads",
    },
    {"attention.layer_norm_epsilon": "layer_norm_eps"},
    {
        "embeddings.word_embeddings": "token_embd",
        "embeddings.position_embeddings": "position_embd",
        "embeddings.token_type_embeddings": "token_types",
        "embeddings.LayerNorm": "token_embd_norm",
        "encoder.layer.{i}.attention.self.query": "blk.{i}.attn_q",
        "encoder.layer.{i}.attention.self.key": "blk.{i}.attn_k",
        "encoder.layer.{i}.attention.self.value": "blk.{i}.attn_v",
        "encoder.layer.{i}.attention.output.dense": "blk.{i}.attn_output",
        "encoder.layer.{i}.attention.output.LayerNorm": "blk.{i}.attn_output_norm",
        "encoder.layer.{i}.intermediate.dense": "blk.{i}.ffn_up",
        "encoder.layer.{i}.output.dense": "blk.{i}.ffn_down",
        "encoder.layer.{i}.output.LayerNorm": "blk.{i}.layer_output_norm",
    },
    ("bert.",),
    (r"embeddings\.position_ids", r"pooler\..*", r"cls\..*"),
    {"position_embedding_type": ("absolute",), "hidden_act": ("gelu", "gelu_new", "gelu_pytorch_tanh")},
)

NOMIC = Family(
    "nomic-bert",
    ("nomic_bert",),
    {
        "context_length": "n_positions",
        "embedding_length": "n_embd",
        "feed_forward_length": "n_inner",
        "block_count": "n_layer",
        "attention.head_count": "n_head",
    },
    {"attention.layer_norm_epsilon": "layer_norm_epsilon", "rope.freq_base": "rotary_emb_base"},
    {
        "embeddings.word_embeddings": "token_embd",
        "embeddings.token_type_embeddings": "token_types",
        "emb_ln": "token_embd_norm",
        "encoder.layers.{i}.attn.Wqkv": "blk.{i}.attn_qkv",
        "encoder.layers.{i}.attn.out_proj": "blk.{i}.attn_output",
        "encoder.layers.{i}.norm1": "blk.{i}.attn_output_norm",
        "encoder.layers.{i}.mlp.fc11": "blk.{i}.ffn_up",
        "encoder.layers.{i}.mlp.fc12": "blk.{i}.ffn_gate",
        "encoder.layers.{i}.mlp.fc2": "blk.{i}.ffn_down",
        "encoder.layers.{i}.norm2": "blk.{i}.layer_output_norm",
    },
    ("bert.",),
    (r"pooler\..*", r"cls\..*"),
    {
        "activation_function": ("swiglu",),
        "rotary_emb_fraction": (1.0, 1),
        "rotary_emb_interleaved": (False,),
        "rotary_emb_scale_base": (None,),
        "prenorm": (False,),
    },
)

FAMILIES = (BERT, NOMIC)
