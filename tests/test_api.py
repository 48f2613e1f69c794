"""What `import edgellm` offers, and what it costs."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import edgellm
from edgellm import errors
from edgellm.sampling import SamplingParams

PUBLIC = [
    "ArgumentError",
    "BackendError",
    "CancelledError",
    "ClosedError",
    "ContextOverflowError",
    "DownloadError",
    "EdgeLLMError",
    "Generation",
    "GrammarError",
    "Model",
    "ModelFormatError",
    "ModelInfo",
    "ModelNotFoundError",
    "NumericalError",
    "OutOfMemoryError",
    "TemplateError",
    "Timings",
    "Tokenizer",
    "UnsupportedModelError",
    "Usage",
    "VocabularyError",
    "__version__",
    "catalog",
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


@pytest.mark.parametrize("method", ["generate", "chat"])
def test_sampling_keywords_have_the_samplers_defaults(method):
    keywords = inspect.signature(getattr(edgellm.Model, method)).parameters
    for name, parameter in inspect.signature(SamplingParams).parameters.items():
        assert keywords[name].default == parameter.default
        assert keywords[name].kind is inspect.Parameter.KEYWORD_ONLY


def test_generate_and_chat_take_the_same_keywords():
    def keywords(method):
        parameters = inspect.signature(method).parameters
        return {name: parameters[name].default for name in parameters if name not in ("prompt", "messages")}

    assert keywords(edgellm.Model.generate) == keywords(edgellm.Model.chat)


def test_importing_is_light():
    code = "import sys, edgellm; print([m for m in ('numpy', 'asyncio', 'edgellm.model') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.strip() == "[]"
