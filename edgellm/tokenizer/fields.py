"""Checked reading of tokenizer metadata: a value has the expected kind, or the error names file and key."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edgellm.errors import ModelFormatError

PREFIX = "tokenizer.ggml."

logger = logging.getLogger("edgellm.tokenizer")


class Fields:
    """The ``tokenizer.ggml.*`` part of a metadata mapping. Keys are given without that prefix.

    Arrays may be lists or array objects that offer ``bytes_list()`` (strings) and ``numpy()`` (numbers).
    """

    def __init__(self, metadata: Mapping[str, Any], name: str) -> None:
        self.metadata = metadata
        self.name = name
        self.warnings: list[str] = []

    def __contains__(self, key: str) -> bool:
        return PREFIX + key in self.metadata

    def error(self, key: str, message: str) -> ModelFormatError:
        """The error to raise about ``key``."""
        return ModelFormatError(f"{self.name}: {PREFIX}{key} {message}")

    def warn(self, key: str, message: str) -> None:
        """Log, and remember, a fault of the file that is harmless enough to go on."""
        self.warnings.append(f"{PREFIX}{key} {message}")
        logger.warning("%s: %s", self.name, self.warnings[-1])

    def text(self, key: str) -> str | None:
        """A string value, or None when the key is missing."""
        value = self.metadata.get(PREFIX + key)
        if value is not None and not isinstance(value, str):
            raise self.error(key, f"must be a string, not {type(value).__name__}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """A boolean value, or ``default`` when the key is missing."""
        value = self.metadata.get(PREFIX + key)
        if value is None:
            return default
        if not isinstance(value, bool | np.bool_):
            raise self.error(key, f"must be a boolean, not {type(value).__name__}")
        return bool(value)

    def token_id(self, key: str, n_vocab: int) -> int | None:
        """A token id. Missing, or outside the vocabulary (logged), gives None."""
        value = self.metadata.get(PREFIX + key)
        if value is None:
            return None
        if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
            raise self.error(key, f"must be an integer, not {type(value).__name__}")
        if not 0 <= value < n_vocab:
            self.warn(key, f"is {value}, outside of the vocabulary of {n_vocab} tokens; ignored")
            return None
        return int(value)

    def strings(self, key: str) -> list[bytes] | None:
        """An array of strings as raw bytes, or None when the key is missing."""
        value = self.metadata.get(PREFIX + key)
        if value is None:
            return None
        try:
            items = value.bytes_list() if hasattr(value, "bytes_list") else _encode_all(value)
            # join checks every element's type at C speed.
            b"".join(items)
        except (TypeError, ValueError, AttributeError) as exc:
            raise self.error(key, "must be an array of strings") from exc
        return list(items)

    def numbers(self, key: str, n_tokens: int, kinds: str) -> npt.NDArray[Any] | None:
        """A numeric array with one entry per token, or None when the key is missing.

        kinds: accepted NumPy dtype kinds, such as ``"iu"``.
        """
        value = self.metadata.get(PREFIX + key)
        if value is None:
            return None
        try:
            array = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
        except (TypeError, ValueError, AttributeError, OverflowError) as exc:
            raise self.error(key, "must be an array of numbers") from exc
        if array.ndim != 1 or (array.size and array.dtype.kind not in kinds):
            raise self.error(key, f"must be an array of {'integers' if kinds == 'iu' else 'numbers'}")
        if array.size != n_tokens:
            raise self.error(key, f"has {array.size} entries, but {PREFIX}tokens has {n_tokens}")
        return array

    def scores(self, n_tokens: int) -> npt.NDArray[np.float32] | None:
        """The pieces' scores, or None when the key is missing."""
        scores = self.numbers("scores", n_tokens, "iuf")
        if scores is None:
            return None
        bad = np.flatnonzero(np.isnan(scores))
        if bad.size:
            raise self.error("scores", f"gives token {bad[0]} the score NaN")
        return scores.astype(np.float32)

    def blob(self, key: str) -> bytes:
        """An array of bytes, empty when the key is missing."""
        value = self.metadata.get(PREFIX + key)
        if value is None:
            return b""
        try:
            array = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
        except (TypeError, ValueError, AttributeError, OverflowError):
            array = np.empty(0, np.object_)
        if (
            array.ndim != 1
            or array.dtype.kind not in "iu"
            or (array.size and not -128 <= array.min() <= array.max() <= 255)
        ):
            raise self.error(key, "must be an array of bytes")
        return array.astype(np.uint8).tobytes()


def _encode_all(values: Sequence[str | bytes]) -> list[bytes]:
    if isinstance(values, str | bytes):
        raise TypeError("a single string is not an array")
    return [v if isinstance(v, bytes) else v.encode("utf-8", "surrogateescape") for v in values]
