"""A factory of metadata, ``KIND_metadata``, and a tokenizer, ``KIND``, for each kind of vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from edgellm.tokenizer import Tokenizer, load_tokenizer
from tests.support import vocabularies

Factory = Callable[..., dict[str, Any]]


def _add_fixtures(kind: str) -> None:
    factory: Factory = getattr(vocabularies, f"{kind}_metadata")

    @pytest.fixture(scope="session", name=f"{kind}_metadata")
    def metadata() -> Factory:
        return factory

    @pytest.fixture(scope="session", name=kind)
    def tokenizer() -> Tokenizer:
        return load_tokenizer(factory())

    globals().update({f"_{kind}_metadata": metadata, f"_{kind}": tokenizer})


for _kind in vocabularies.KINDS:
    _add_fixtures(_kind)


@pytest.fixture(scope="session", params=vocabularies.KINDS)
def any_tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    """Each of them."""
    found: Tokenizer = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="session", params=vocabularies.EXACT)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    """Each that gives text back as it was."""
    found: Tokenizer = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="session")
def spell() -> Callable[[Tokenizer, list[int]], list[str]]:
    """A function that gives the spelling of each id."""
    return lambda tokenizer, ids: [tokenizer.piece(token) for token in ids]
