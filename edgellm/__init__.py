"""EdgeLLM: GGUF language models inside your own Python process.

    import edgellm

    with edgellm.Model("smollm2-135m-instruct") as model:
        for chunk in model.generate("The capital of France is", max_tokens=32):
            print(chunk, end="", flush=True)

Everything public is in `__all__`; importing the package loads none of the heavy libraries behind it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from edgellm.errors import (
    ArgumentError,
    BackendError,
    CallbackError,
    CancelledError,
    ClosedError,
    ContextOverflowError,
    DownloadError,
    EdgeLLMError,
    GrammarError,
    IncompleteOutputError,
    ModelFormatError,
    ModelNotFoundError,
    NumericalError,
    OutOfMemoryError,
    TemplateError,
    UnsupportedModelError,
    VocabularyError,
)

if TYPE_CHECKING:
    from edgellm import catalog
    from edgellm.architectures import register_architecture
    from edgellm.chat.events import ContentDelta, ReasoningDelta, ToolCall, ToolCallDelta, ToolCallStart, ToolResult
    from edgellm.conversion import convert
    from edgellm.engine.generation import Generation
    from edgellm.engine.request import Timings, Usage
    from edgellm.info import ModelInfo
    from edgellm.model import Model
    from edgellm.reply import Reply
    from edgellm.toolrun import ToolRun
    from edgellm.vocabulary import Tokenizer

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "BackendError",
    "CallbackError",
    "CancelledError",
    "ClosedError",
    "ContentDelta",
    "ContextOverflowError",
    "DownloadError",
    "EdgeLLMError",
    "Generation",
    "GrammarError",
    "IncompleteOutputError",
    "Model",
    "ModelFormatError",
    "ModelInfo",
    "ModelNotFoundError",
    "NumericalError",
    "OutOfMemoryError",
    "ReasoningDelta",
    "Reply",
    "TemplateError",
    "Timings",
    "Tokenizer",
    "ToolCall",
    "ToolCallDelta",
    "ToolCallStart",
    "ToolResult",
    "ToolRun",
    "UnsupportedModelError",
    "Usage",
    "VocabularyError",
    "__version__",
    "catalog",
    "convert",
    "register_architecture",
]

_LAZY = {
    "ContentDelta": "edgellm.chat.events",
    "Generation": "edgellm.engine.generation",
    "Model": "edgellm.model",
    "ModelInfo": "edgellm.info",
    "ReasoningDelta": "edgellm.chat.events",
    "Reply": "edgellm.reply",
    "Timings": "edgellm.engine.request",
    "Tokenizer": "edgellm.vocabulary",
    "ToolCall": "edgellm.chat.events",
    "ToolCallDelta": "edgellm.chat.events",
    "ToolCallStart": "edgellm.chat.events",
    "ToolResult": "edgellm.chat.events",
    "ToolRun": "edgellm.toolrun",
    "Usage": "edgellm.engine.request",
    "convert": "edgellm.conversion",
    "register_architecture": "edgellm.architectures",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for."""
    if name == "catalog":
        return import_module("edgellm.catalog")
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_LAZY[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
