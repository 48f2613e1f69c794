"""Every error EdgeLLM raises on purpose, in one tree.

Each class also derives from the builtin a caller would guess, so ``except ValueError`` works
where ``except edgellm.EdgeLLMError`` is too wide.

    EdgeLLMError
    ├── ModelFormatError        (ValueError)           the file is damaged or lies
    ├── UnsupportedModelError   (NotImplementedError)  the file is fine, but needs what we lack
    ├── ModelNotFoundError      (FileNotFoundError)    no such file or catalog name
    ├── DownloadError           (ConnectionError)      a model could not be fetched or verified
    ├── ArgumentError           (ValueError)           an argument is out of range
    ├── VocabularyError         (ValueError)           text asked of a model that cannot give it
    ├── TemplateError           (ValueError)           the chat template failed or refused
    ├── GrammarError            (ValueError)           a schema or grammar cannot be used
    ├── IncompleteOutputError   (ValueError)           a text ended before the value it was to hold
    ├── ContextOverflowError    (ValueError)           more tokens than the context holds
    ├── OutOfMemoryError        (MemoryError)          the plan does not fit in memory
    ├── NumericalError          (ArithmeticError)      the model gave NaN or no possible token
    ├── CallbackError           (RuntimeError)         a function of the caller's failed
    ├── BackendError            (RuntimeError)         a backend is missing or failed
    ├── ClosedError             (RuntimeError)         the Model was closed, or crossed a fork
    └── CancelledError          (RuntimeError)         the work was cancelled
"""


class EdgeLLMError(Exception):
    """Base of every error EdgeLLM raises on purpose."""


class ModelFormatError(EdgeLLMError, ValueError):
    """A model file is damaged, truncated or contradicts itself."""


class UnsupportedModelError(EdgeLLMError, NotImplementedError):
    """A valid model needs an architecture, type or feature that EdgeLLM does not have."""


class ModelNotFoundError(EdgeLLMError, FileNotFoundError):
    """A name is neither a file nor a model of the catalog."""


class DownloadError(EdgeLLMError, ConnectionError):
    """A model could not be fetched, or what came is not what the catalog says."""


class ArgumentError(EdgeLLMError, ValueError):
    """An argument has a value that makes no sense."""


class VocabularyError(EdgeLLMError, ValueError):
    """Text was asked of a model without a usable vocabulary, or an id lies outside of it."""


class TemplateError(EdgeLLMError, ValueError):
    """A chat template is broken, broke its limits, or refused the conversation."""


class GrammarError(EdgeLLMError, ValueError):
    """A schema or grammar cannot be enforced."""


class IncompleteOutputError(EdgeLLMError, ValueError):
    """A text ended before the value that a schema or grammar asks for was complete."""


class ContextOverflowError(EdgeLLMError, ValueError):
    """A sequence needs more positions than the context holds."""


class OutOfMemoryError(EdgeLLMError, MemoryError):
    """The memory plan does not fit."""


class NumericalError(EdgeLLMError, ArithmeticError):
    """The model's logits leave no token to choose."""


class CallbackError(EdgeLLMError, RuntimeError):
    """A function that the caller passed in raised an exception, which is the cause of this one."""


class BackendError(EdgeLLMError, RuntimeError):
    """A backend is missing on this machine or failed."""


class ClosedError(EdgeLLMError, RuntimeError):
    """The Model is closed, or was carried into a forked process."""


class CancelledError(EdgeLLMError, RuntimeError):
    """The work was cancelled."""
