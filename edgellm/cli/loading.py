"""From what the user typed to a file or an open model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgellm.cli.progress import Download
from edgellm.errors import TemplateError, VocabularyError

if TYPE_CHECKING:
    from edgellm import Model


def find_model(name: str | None) -> Path:
    """Return the path of a file or catalog model, fetching it first where needed; None is the catalog's default."""
    from edgellm import catalog

    wanted = name or catalog.default().name
    with Download(wanted) as bar:
        return catalog.resolve(wanted, progress=bar)


def open_model(name: str | None, arguments: dict[str, Any]) -> Model:
    """Open a file or catalog model as `find_model` finds it."""
    import edgellm

    return edgellm.Model(find_model(name), **arguments)


def has_chat_format(model: Model) -> bool:
    """Return whether the model can chat: it has a chat template, or one that suits its vocabulary."""
    try:
        return bool(model.chat_template)
    except (TemplateError, VocabularyError):
        return False
