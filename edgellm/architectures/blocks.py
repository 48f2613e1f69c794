"""What decoders are made of, shared by the families: all of it in one place to import from."""

from edgellm.architectures.attention import attended, attention, gated, project, scale_of
from edgellm.architectures.ends import embed, head, ignore_dense, layers, norm, output
from edgellm.architectures.layer import Feed, ffn, layer, meet, parallel_layer
from edgellm.architectures.style import PLAIN, Style

__all__ = [
    "PLAIN",
    "Feed",
    "Style",
    "attended",
    "attention",
    "embed",
    "ffn",
    "gated",
    "head",
    "ignore_dense",
    "layer",
    "layers",
    "meet",
    "norm",
    "output",
    "parallel_layer",
    "project",
    "scale_of",
]
