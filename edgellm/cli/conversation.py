"""A conversation: its turns, its settings, and the file it is saved to."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgellm.cli.options import OTHERS, SETTINGS
from edgellm.errors import ArgumentError

Message = dict[str, str]
FORMAT = 1
"""Version of the saved file."""


@dataclass(slots=True)
class Turn:
    """What the user said and what came back."""

    user: str
    assistant: str | None = None


@dataclass(slots=True)
class Conversation:
    """Everything said so far.  Turns before `first` are kept, but no longer sent to the model."""

    system: str | None = None
    turns: list[Turn] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    first: int = 0

    def messages(self, first: int | None = None) -> list[Message]:
        """Return the messages to send: the system message, then the turns from `first` on."""
        found = [{"role": "system", "content": self.system}] if self.system is not None else []
        for turn in self.turns[self.first if first is None else first :]:
            found.append({"role": "user", "content": turn.user})
            if turn.assistant is not None:
                found.append({"role": "assistant", "content": turn.assistant})
        return found

    def drop_oldest(self) -> bool:
        """Leave one more turn out of `messages`; the last one always stays.  Return whether there was one."""
        if self.first + 1 >= len(self.turns):
            return False
        self.first += 1
        return True

    def reset(self) -> None:
        """Forget the turns; the system message and the settings stay."""
        self.turns.clear()
        self.first = 0

    def save(self, path: Path, model: str) -> None:
        """Write everything to `path` as JSON; the old file stays whole until the new one is complete."""
        content = {
            "edgellm_chat": FORMAT,
            "model": model,
            "settings": self.settings,
            "messages": self.messages(first=0),
        }
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        try:
            with open(handle, "w", encoding="utf-8") as file:
                json.dump(content, file, ensure_ascii=False, indent=2)
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    @classmethod
    def load(cls, path: Path) -> Conversation:
        """Read what `save` wrote.  Raises ArgumentError naming what is wrong with the file, or OSError."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise ArgumentError(f"{path} is not JSON: {error}") from None
        if not isinstance(content, dict) or content.get("edgellm_chat") != FORMAT:
            raise ArgumentError(f"{path} is not a saved chat of version {FORMAT}")
        system, turns = _turns(path, content.get("messages"))
        return cls(system, turns, _settings(path, content.get("settings")))


def _turns(path: Path, messages: Any) -> tuple[str | None, list[Turn]]:
    if not isinstance(messages, list):
        raise ArgumentError(f"{path}: messages must be a list")
    system: str | None = None
    turns: list[Turn] = []
    for i, message in enumerate(messages):
        match message:
            case {"role": "system", "content": str(text)} if i == 0:
                system = text
            case {"role": "user", "content": str(text)}:
                turns.append(Turn(text))
            case {"role": "assistant", "content": str(text)} if turns and turns[-1].assistant is None:
                turns[-1].assistant = text
            case _:
                raise ArgumentError(f"{path}: message {i} is out of place or lacks a role or text")
    return system, turns


def _settings(path: Path, settings: Any) -> dict[str, Any]:
    if not isinstance(settings, Mapping):
        raise ArgumentError(f"{path}: settings must be an object")
    kinds: dict[str, tuple[type, ...]] = {s.name: (int, s.kind) for s in SETTINGS}
    kinds |= {name: (kind,) for name, kind in OTHERS.items()}
    for name, value in settings.items():
        if name not in kinds or not isinstance(value, kinds[name]) or isinstance(value, bool):
            raise ArgumentError(f"{path}: setting {name!r} is unknown or has a wrong value")
    return dict(settings)
