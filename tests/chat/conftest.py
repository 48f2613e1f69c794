from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import edgellm
from tests.support.talk import OPENING, TEMPLATE, Say, talker


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Say]:
    """A factory of models that say one text after the other, ending each reply unless not `end`."""
    opened: list[edgellm.Model] = []

    def make(*replies: str, template: str = TEMPLATE, end: bool = True, opening: str = OPENING) -> edgellm.Model:
        opened.append(talker(monkeypatch, tmp_path, replies, template, end, opening))
        return opened[-1]

    yield make
    for model in opened:
        model.close()
