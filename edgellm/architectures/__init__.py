"""Architectures: metadata in, Program out.  One small file per family."""

# Importing a family's file registers it.
from edgellm.architectures import gemma, gemma2, gemma3, llama, mistral3, qwen2, qwen3, smollm3  # noqa: F401
from edgellm.architectures.params import Params
from edgellm.architectures.registry import build, names, register

__all__ = ["Params", "build", "names", "register"]
