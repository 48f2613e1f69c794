"""Hyper-parameters: read from a file's metadata and checked before anything is computed with them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from edgellm.architectures.metadata import Metadata
from edgellm.errors import ModelFormatError, UnsupportedModelError
from edgellm.program import Pooling

_UNSPECIFIED = 2**32 - 1
_POOLINGS: tuple[Pooling, ...] = ("none", "mean", "cls", "last", "rank")


class Params(Metadata):
    """The metadata of one model under its architecture's prefix.

    The properties are the figures that nearly every model has; each is checked when first asked for.
    """

    def __init__(
        self,
        architecture: str,
        metadata: Mapping[str, Any],
        tensors: Mapping[str, tuple[int, ...]],
        n_ctx: int | None = None,
    ) -> None:
        super().__init__(architecture, metadata, tensors)
        self._n_ctx = n_ctx
        self._fewest_heads = 1

    def allow_layers_without_heads(self) -> None:
        """Let layers have 0 heads: those that attend to nothing.  To be called before heads are asked for."""
        self._fewest_heads = 0

    @cached_property
    def depth(self) -> int:
        """Layers that make the logits: all but those that predict further tokens."""
        further = self.integer("nextn_predict_layers", 0, minimum=0)
        if further >= self.n_layer:
            raise ModelFormatError(f"{self.key('nextn_predict_layers')} = {further}: of only {self.n_layer} layers")
        return self.n_layer - further

    @cached_property
    def n_ctx(self) -> int:
        """Positions that will be used: those asked for, as far as the model was trained."""
        return min(self._n_ctx or self.n_ctx_train, self.n_ctx_train)

    @cached_property
    def n_embd(self) -> int:
        """Width of the residual stream."""
        return self.integer("embedding_length")

    @cached_property
    def n_ctx_train(self) -> int:
        """Positions the model was trained for."""
        return self.integer("context_length")

    @cached_property
    def n_vocab(self) -> int:
        """Rows of the token embedding."""
        shape = self.tensors.get("token_embd.weight")
        if shape is None or len(shape) != 2:
            found = "missing" if shape is None else f"of shape {list(shape)}, not a matrix"
            raise ModelFormatError(f"the tensor token_embd.weight is {found}")
        return shape[1]

    @cached_property
    def n_head(self) -> tuple[int, ...]:
        """Query heads per layer."""
        return self.per_layer("attention.head_count", minimum=self._fewest_heads)

    @cached_property
    def n_head_kv(self) -> tuple[int, ...]:
        """Key and value heads per layer; each serves a whole number of query heads."""
        name = "attention.head_count_kv"
        counts = self.per_layer(name, self.n_head, minimum=self._fewest_heads)
        for i, (n_head, n_head_kv) in enumerate(zip(self.n_head, counts, strict=True)):
            if n_head_kv and (n_head % n_head_kv or not n_head):
                raise ModelFormatError(f"{self.key(name)} = {n_head_kv}: does not divide {n_head} heads (layer {i})")
        return counts

    @cached_property
    def n_ff(self) -> tuple[int, ...]:
        """Width of the feed-forward network per layer."""
        return self.per_layer("feed_forward_length")

    @cached_property
    def head_dim(self) -> int:
        """Width of a query or key head."""
        return self._head_width("attention.key_length")

    @cached_property
    def head_dim_v(self) -> int:
        """Width of a value head."""
        return self._head_width("attention.value_length")

    @cached_property
    def eps(self) -> float:
        """Epsilon of the RMS norms."""
        return self.number("attention.layer_norm_rms_epsilon")

    @cached_property
    def eps_layer(self) -> float:
        """Epsilon of the layer norms."""
        return self.number("attention.layer_norm_epsilon")

    @cached_property
    def n_expert(self) -> int:
        """Experts per layer, 0 in a dense model."""
        n = self.integer("expert_count", 0, minimum=0)
        if n > self._widest:
            raise ModelFormatError(f"{self.key('expert_count')} = {n}: more than any tensor holds")
        return n

    @cached_property
    def n_expert_used(self) -> tuple[int, ...]:
        """Experts that each row uses, per layer."""
        counts = self.per_layer("expert_used_count")
        if max(counts) > self.n_expert:
            raise ModelFormatError(f"{self.key('expert_used_count')} = {max(counts)}: of {self.n_expert} experts")
        return counts

    @cached_property
    def n_ff_exp(self) -> tuple[int, ...]:
        """Width of one expert per layer; without a key that of a dense layer."""
        name = "expert_feed_forward_length"
        own = self.per_layer(name, (0,) * self.n_layer, minimum=0)
        return tuple(n or self.n_ff[i] for i, n in enumerate(own))

    @cached_property
    def local_rot(self) -> int | None:
        """Values of a head that turn in layers with a window, None for as many as elsewhere."""
        return self.integer("rope.dimension_count_swa", 0, minimum=0) or None

    @cached_property
    def pooling(self) -> Pooling | None:
        """How a text's vectors become one; None where the file does not say."""
        name = "pooling_type"
        if self.metadata.get(self.key(name), _UNSPECIFIED) == _UNSPECIFIED:
            return None
        number = self.integer(name, minimum=0)
        if number >= len(_POOLINGS):
            raise UnsupportedModelError(f"{self.key(name)} = {number} is not supported")
        return _POOLINGS[number]

    def attention_scale(self, default: float | None = None) -> float:
        """Return the factor of the scores: as the file says, else `default`, else one over root head_dim."""
        return self.number("attention.scale", 0.0) or default or self.head_dim**-0.5

    def refuse_experts(self) -> None:
        """Raise UnsupportedModelError for a mixture of experts."""
        if n := self.integer("expert_count", 0, minimum=0):
            raise UnsupportedModelError(f"{self.key('expert_count')} = {n}: mixtures of experts are not supported")

    def refuse_non_causal(self) -> None:
        """Raise UnsupportedModelError for a model whose tokens see the future."""
        if not self.flag("attention.causal", True):
            raise UnsupportedModelError(f"{self.key('attention.causal')} = false: only causal models are supported")

    @cached_property
    def _widest(self) -> int:
        return max((max(shape, default=0) for shape in self.tensors.values()), default=0)

    def _head_width(self, name: str) -> int:
        key = self.key(name)
        if key in self.metadata:
            width = self.integer(name)
            if width > self._widest:
                raise ModelFormatError(f"{key} = {width}: wider than every tensor of the file ({self._widest})")
            return width
        n_head = max(self.n_head)
        if n_head == 0 or self.n_embd % n_head:
            raise ModelFormatError(
                f"{self.key('attention.head_count')} = {n_head}: does not divide "
                f"{self.key('embedding_length')} = {self.n_embd}, and {key} is missing"
            )
        return self.n_embd // n_head
