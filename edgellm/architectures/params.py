"""Hyper-parameters: read from a file's metadata and checked before anything is computed with them.

A model file is untrusted, so every number is bounded before it divides, multiplies or sizes a list.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sized
from functools import cached_property
from numbers import Integral, Real
from typing import Any

from edgellm.errors import ModelFormatError, UnsupportedModelError

_INT_MAX = 2**31 - 1


class Params:
    """The metadata of one model under its architecture's prefix.

    The properties are the figures that nearly every decoder has; each is checked when first asked
    for.  Everything raises ModelFormatError naming the key and the bad value.
    """

    def __init__(
        self,
        architecture: str,
        metadata: Mapping[str, Any],
        tensors: Mapping[str, tuple[int, ...]],
        n_ctx: int | None = None,
    ) -> None:
        self.architecture = architecture
        self.metadata = metadata
        self.tensors = tensors
        self._n_ctx = n_ctx
        self._fewest_heads = 1

    def key(self, name: str) -> str:
        """Return the full metadata key of `name`."""
        return f"{self.architecture}.{name}"

    def integer(self, name: str, default: int | None = None, *, minimum: int = 1) -> int:
        """Return one whole number; without a default the key must be there."""
        value = self._get(name, default)
        return self._integer(self.key(name), value, minimum)

    def number(self, name: str, default: float | None = None, *, minimum: float = 0.0) -> float:
        """Return one finite number of at least `minimum`."""
        return self._number(self.key(name), self._get(name, default), minimum)

    def text(self, name: str, default: str) -> str:
        """Return one string."""
        value = self._get(name, default)
        if not isinstance(value, str):
            raise ModelFormatError(f"{self.key(name)} = {_show(value)}: must be a string")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """Return one boolean."""
        value = self._get(name, default)
        if not isinstance(value, bool):
            raise ModelFormatError(f"{self.key(name)} = {_show(value)}: must be a boolean")
        return value

    def per_layer(self, name: str, default: tuple[int, ...] | None = None, *, minimum: int = 1) -> tuple[int, ...]:
        """Return one whole number per layer, from an array or from one number that holds for all."""
        key = self.key(name)
        if key not in self.metadata and default is not None:
            return default
        value = self._get(name, None)
        if not _is_array(value):
            return (self._integer(key, value, minimum),) * self.n_layer
        if len(value) != self.n_layer:
            raise ModelFormatError(f"{key} has {len(value)} values, but the model has {self.n_layer} layers")
        return tuple(self._integer(f"{key}[{i}]", item, minimum) for i, item in enumerate(value))

    def allow_layers_without_heads(self) -> None:
        """Let layers have 0 heads: those that attend to nothing.  To be called before heads are asked for."""
        self._fewest_heads = 0

    @cached_property
    def n_layer(self) -> int:
        """Layers; a file cannot have more of them than tensors."""
        n = self.integer("block_count")
        if n > len(self.tensors):
            raise ModelFormatError(
                f"{self.key('block_count')} = {n}: the file has only {len(self.tensors)} tensors for that many layers"
            )
        return n

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

    def attention_scale(self, default: float | None = None) -> float:
        """Return the factor of the scores: as the file says, else `default`, else one over root head_dim."""
        return self.number("attention.scale", 0.0) or default or self.head_dim**-0.5

    def windows(
        self, period: int, default: int = 0, *, first: bool = False, size: int | None = None
    ) -> tuple[int | None, ...]:
        """Return the attention window of each layer, None where it sees everything.

        Every `period`-th layer sees everything (0: none does), the last of the period or the `first`, unless the
        file has its own period or says it layer by layer.  `default` is the window without a key, `size` one
        whatever the key; a window of 0 turns windows off.
        """
        size = self.integer("attention.sliding_window", default, minimum=0) if size is None else size
        name = "attention.sliding_window_pattern"
        pattern = self.metadata.get(self.key(name), period)
        if _is_array(pattern):
            slides = list(self.per_layer_flags(name))
        else:
            every = self._integer(self.key(name), pattern, 0)
            whole = 0 if first else every - 1
            slides = [every == 0 or i % every != whole for i in range(self.n_layer)]
        return tuple(size if size and slide else None for slide in slides)

    def per_layer_flags(self, name: str) -> tuple[bool, ...]:
        """Return one flag per layer, from an array of booleans or numbers."""
        value = self._get(name, None)
        key = self.key(name)
        if not _is_array(value) or len(value) != self.n_layer:
            raise ModelFormatError(f"{key} = {_show(value)}: must have one value for each of {self.n_layer} layers")
        numbers = (int(x) if isinstance(x, bool) else x for x in value)
        return tuple(self._integer(f"{key}[{i}]", x, 0) > 0 for i, x in enumerate(numbers))

    def is_array(self, name: str) -> bool:
        """Return whether the key holds one value for each layer."""
        return _is_array(self.metadata.get(self.key(name)))

    def numbers_per_layer(self, name: str) -> tuple[float, ...]:
        """Return one number of at least 0 for each layer, from an array or one that holds for all; 0 without."""
        value = self.metadata.get(self.key(name), 0.0)
        values = list(value) if _is_array(value) else [value] * self.n_layer
        if len(values) != self.n_layer:
            raise ModelFormatError(
                f"{self.key(name)} has {len(values)} values, but the model has {self.n_layer} layers"
            )
        return tuple(self._number(f"{self.key(name)}[{i}]", item, 0.0) for i, item in enumerate(values))

    def refuse_other(self, name: str, neutral: float = 0) -> None:
        """Raise UnsupportedModelError where the key has another value than the one that changes nothing."""
        value = self.metadata.get(self.key(name), neutral)
        if value != neutral:
            raise UnsupportedModelError(f"{self.key(name)} = {_show(value)} is not supported")

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

    def _get(self, name: str, default: Any) -> Any:
        value = self.metadata.get(self.key(name), default)
        if value is None:
            raise ModelFormatError(f"the metadata key {self.key(name)} is missing")
        return value

    @staticmethod
    def _number(key: str, value: Any, minimum: float) -> float:
        if isinstance(value, bool) or not isinstance(value, Real):
            raise ModelFormatError(f"{key} = {_show(value)}: must be a number")
        if not math.isfinite(value) or value < minimum:
            raise ModelFormatError(f"{key} = {value}: must be a finite number of at least {minimum:g}")
        return float(value)

    @staticmethod
    def _integer(key: str, value: Any, minimum: int) -> int:
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise ModelFormatError(f"{key} = {_show(value)}: must be one whole number")
        number = int(value)
        if not minimum <= number <= _INT_MAX:
            raise ModelFormatError(f"{key} = {number}: must be from {minimum} to {_INT_MAX}")
        return number


def _is_array(value: Any) -> bool:
    return isinstance(value, Iterable) and isinstance(value, Sized) and not isinstance(value, (str, bytes))


def _show(value: Any) -> str:
    """Return a value for a message, cut short: it comes from the file and may be of any size."""
    if _is_array(value):
        return f"an array of {len(value)}"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
