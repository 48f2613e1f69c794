"""Text to token ids and back, built from plain GGUF metadata.

This package never reads a file: :func:`load_tokenizer` takes a mapping of metadata keys to values.
"""

from edgellm.tokenizer.base import Tokenizer
from edgellm.tokenizer.load import load_tokenizer
from edgellm.tokenizer.stops import StopMatcher
from edgellm.tokenizer.stream import StreamDecoder

__all__ = ["StopMatcher", "StreamDecoder", "Tokenizer", "load_tokenizer"]
