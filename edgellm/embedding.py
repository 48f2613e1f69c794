"""Texts as vectors: which rows of a text are asked of the engine, and how they become one vector."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from edgellm.arguments import choice, token_list
from edgellm.engine.memory import MAX_RUNNING
from edgellm.engine.request import Request
from edgellm.engine.scoring import KeepVectors
from edgellm.errors import ArgumentError, CancelledError, ContextOverflowError, NumericalError, UnsupportedModelError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from edgellm.engine.engine import Engine
    from edgellm.info import ModelInfo
    from edgellm.prompts import Prompts

_IN_FLIGHT = 2 * MAX_RUNNING
"""Texts asked for at one time: enough to fill every step; the rows of more would only take memory."""
_CHOICES = ("mean", "cls", "last")


class Embedder:
    """Embeds texts with one model.  Safe to use from several threads."""

    def __init__(self, engine: Engine, prompts: Prompts, info: ModelInfo) -> None:
        self._engine = engine
        self._prompts = prompts
        self._info = info

    def embed(self, texts: object, normalize: bool, pooling: str | None) -> npt.NDArray[np.float32]:
        """Return one row per text.  See `Model.embed`."""
        import numpy as np

        width = self._width()
        how = self._pooling(pooling)
        inputs = self._inputs(texts)
        result = np.empty((len(inputs), width), np.float32)
        flying: deque[tuple[Request, KeepVectors]] = deque()
        try:
            for i, ids in enumerate(inputs):
                if len(flying) == _IN_FLIGHT:
                    result[i - _IN_FLIGHT] = _pooled(self._wait(*flying[0]), normalize and how != "rank")
                    flying.popleft()
                flying.append(self._submit(ids, _rows(how, len(ids)), width))
            for i, asked in enumerate(flying, len(inputs) - len(flying)):
                result[i] = _pooled(self._wait(*asked), normalize and how != "rank")
        finally:
            for request, _ in flying:
                self._engine.cancel(request)
        return result

    def embed_tokens(self, text: object, normalize: bool) -> npt.NDArray[np.float32]:
        """Return one row per token.  See `Model.embed_tokens`."""
        import numpy as np

        width = self._width()
        ids = self._ids("text", text)
        request, vectors = self._submit(ids, range(len(ids)), width)
        try:
            rows = self._wait(request, vectors)
        finally:
            self._engine.cancel(request)
        return np.stack([_pooled(row[None], normalize) for row in rows])

    def _width(self) -> int:
        if self._info.n_embd_out is None:
            raise UnsupportedModelError(f"{self._info.architecture} models declare no embeddings")
        return self._info.n_embd_out

    def _pooling(self, pooling: str | None) -> str:
        own = self._info.pooling
        if own == "rank":
            if pooling is not None:
                raise ArgumentError(f"pooling={pooling!r}: this model makes scores of whole texts, not vectors")
            return own
        if pooling is not None:
            return choice("pooling", pooling, _CHOICES)
        if own == "none":
            raise ArgumentError(
                "this model's file asks for a vector per token, not one per text: give pooling as one of "
                f"{', '.join(map(repr, _CHOICES))}, or use embed_tokens()"
            )
        return own or "mean"

    def _inputs(self, texts: object) -> list[list[int]]:
        if isinstance(texts, str):
            texts = [texts]
        if isinstance(texts, (bytes, Mapping)) or not isinstance(texts, Iterable):
            raise ArgumentError(f"texts must be a text or a sequence of texts, not a {type(texts).__name__}")
        return [self._ids(f"texts[{i}]", text) for i, text in enumerate(texts)]

    def _ids(self, name: str, text: object) -> list[int]:
        if isinstance(text, str):
            ids = self._prompts.tokenizer.encode(text)
        else:
            ids = token_list(name, text, self._info.n_vocab)
        if not ids:
            raise ArgumentError(f"{name} is empty, and has no tokens to make a vector of")
        if len(ids) > self._info.n_ctx:
            raise ContextOverflowError(
                f"{name} has {len(ids)} tokens, the context holds {self._info.n_ctx}: shorten it or cut it into parts"
            )
        return ids

    def _submit(self, ids: list[int], rows: range, width: int) -> tuple[Request, KeepVectors]:
        vectors = KeepVectors(len(ids), rows, width)
        request = Request(ids, max_tokens=0, sampler=None, score=vectors)
        self._engine.submit(request)
        return request, vectors

    def _wait(self, request: Request, vectors: KeepVectors) -> npt.NDArray[np.float32]:
        import numpy as np

        request.events.get()
        if request.error is not None:
            raise request.error
        if request.finish_reason == "cancelled":
            raise CancelledError("the Model was closed while it computed embeddings")
        if not np.isfinite(vectors.rows).all():
            raise NumericalError("the model made an embedding that is not finite: the file or its numbers are damaged")
        return vectors.rows


def _rows(pooling: str, n_tokens: int) -> range:
    """Return the rows whose mean is the text's vector."""
    if pooling == "last":
        return range(n_tokens - 1, n_tokens)
    return range(n_tokens) if pooling == "mean" else range(1)


def _pooled(rows: npt.NDArray[np.float32], normalize: bool) -> npt.NDArray[np.float32]:
    """Return the mean of the rows, of length 1 if so asked (or 0, if it is 0)."""
    import numpy as np

    vector = rows.mean(axis=0, dtype=np.float64)
    length = float(np.sqrt(np.sum(vector * vector)))
    return np.asarray(vector / length if normalize and length else vector, np.float32)
