"""What `import edgellm` offers, and what it costs."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import edgellm
from edgellm import errors

PUBLIC = [
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


def test_the_export_list_is_this_one():
    assert edgellm.__all__ == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_everything_in_the_list_can_be_had(name):
    assert getattr(edgellm, name) is not None
    assert name in dir(edgellm)


def test_every_error_is_exported():
    kinds = {name for name, value in vars(errors).items() if inspect.isclass(value)}
    assert kinds <= set(edgellm.__all__)
    assert all(issubclass(getattr(errors, name), edgellm.EdgeLLMError) for name in kinds)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Modell'"):
        _ = edgellm.Modell


def test_importing_is_light():
    code = "import sys, edgellm; print([m for m in ('numpy', 'asyncio', 'edgellm.model') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.strip() == "[]"
