"""Reading and writing GGUF files, with nothing in them trusted."""

from edgellm.gguf.array import GGUFArray
from edgellm.gguf.metadata import Metadata
from edgellm.gguf.reader import ModelFile, Reader
from edgellm.gguf.shards import ShardedReader, open_model
from edgellm.gguf.tensors import TensorInfo
from edgellm.gguf.values import ValueType
from edgellm.gguf.writer import write

__all__ = [
    "GGUFArray",
    "Metadata",
    "ModelFile",
    "Reader",
    "ShardedReader",
    "TensorInfo",
    "ValueType",
    "open_model",
    "write",
]
