"""From a folder with safetensors, config.json and a tokenizer to one GGUF file."""

from edgellm.conversion.folder import convert

__all__ = ["convert"]
