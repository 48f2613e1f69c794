"""What a text is to be like, in one form: a Lark grammar, and how to read a finished text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from edgellm.errors import ArgumentError, GrammarError

Probe = Callable[[str], str]
"""From a grammar to the error it gives when compiled; empty if it gives none."""

# Masks must allow every spelling of a forced text: the model chooses among them, and none may be missing where a bias
# or a penalty forbids another.
HEADER = '%llguidance {"no_forcing": true}\n'

WHITE_SPACE = r"\x20|\n[\x20\t]{0,20}"
"""White space between the tokens of JSON: none, one space, or a line end with an indentation."""

MAX_TEXT = 256 * 1024
MAX_CHOICES = 10_000


def _same(text: str) -> Any:
    return text


@dataclass(frozen=True, slots=True)
class Grammar:
    """A constraint on a text, before it is compiled for a vocabulary.

    lark: the grammar, in llguidance's dialect. argument: the name of the argument it came from, for messages.
    value: the Python value of a complete text; raises ValueError for one that is not.
    locate: where in the source an error of the compiler comes from, if that is not the Lark the user wrote.
    """

    lark: str
    argument: str
    value: Callable[[str], Any] = _same
    locate: Callable[[str, Probe], str] | None = None

    def explain(self, error: str, probe: Probe) -> str:
        """A message for users about an error of the compiler."""
        if self.locate is None:
            return f"{self.argument}: {shortened(error)}"
        return f"{self.argument}{self.locate(error, probe)}: {shortened(without_place(error))}"


def shortened(error: str, length: int = 400) -> str:
    """The first lines of a message, without what is long or of no use to a reader."""
    lines = [line.rstrip() for line in error.splitlines() if line.strip() and not _OURS.search(line)]
    text = "\n".join(line if len(line) <= 120 else line[:117] + "..." for line in lines[:6])
    return text if len(text) <= length else text[: length - 3] + "..."


def nowhere(error: str, probe: Probe) -> str:
    """For a source in which the compiler's places mean nothing."""
    return ""


def without_place(error: str) -> str:
    """A message without the place in the grammar that it was made for."""
    text = re.sub(r"^at \d+\(\d+\): (failed to compile JSON schema: )?", "", error)
    return "\n".join(line for line in text.splitlines() if not _PLACE.match(line))


_OURS = re.compile(r"^\s*\d+ \|$|%llguidance |<non-verbose/>")
_PLACE = re.compile(r"\s+(\d+ \| |\^$)")


def check_text(argument: str, value: object) -> str:
    """`value` if it is a text of a size that may be compiled. Raises ArgumentError, GrammarError."""
    if not isinstance(value, str):
        raise ArgumentError(f"{argument} must be a text, not {type(value).__name__}")
    if len(value) > MAX_TEXT:
        raise GrammarError(f"{argument} has {len(value)} characters, more than the limit of {MAX_TEXT}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise GrammarError(f"{argument} holds a lone surrogate at index {error.start}") from None
    return value


def regex_grammar(pattern: object) -> Grammar:
    """A text that matches a regular expression from its first to its last character.

    The syntax is that of Rust's regex: no look-around, no back-references. `\\d` is 0 to 9; `.` is no line end.
    """
    return Grammar(f"{HEADER}start: {regex_body(pattern)}", "regex", locate=nowhere)


def regex_body(pattern: object) -> str:
    """A regular expression as a Lark expression. Raises ArgumentError, GrammarError."""
    from llguidance import regex_to_lark

    text = check_text("regex", pattern)
    return f"/{_anchored(regex_to_lark(text, use_ascii='d'))}/"


def _anchored(pattern: str) -> str:
    """Without the anchors at its ends, which say nothing new; those elsewhere the compiler refuses."""
    if pattern.startswith("^"):
        pattern = pattern[1:]
    if pattern.endswith("$") and not _escaped(pattern, len(pattern) - 1):
        pattern = pattern[:-1]
    return f"(?:{pattern})"


def _escaped(text: str, at: int) -> bool:
    before = text[:at]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1


def choice_grammar(choices: object) -> Grammar:
    """A text that is one of several."""
    if isinstance(choices, str | bytes) or not isinstance(choices, Iterable):
        raise ArgumentError(f"choices must be a sequence of texts, not {choices!r}")
    texts = list(choices)
    if not texts:
        raise ArgumentError("choices is empty: give at least one text")
    if len(texts) > MAX_CHOICES:
        raise GrammarError(f"choices has {len(texts)} texts, more than the limit of {MAX_CHOICES}")
    for text in texts:
        if not isinstance(text, str) or not text:
            raise ArgumentError(f"choices must hold texts that are not empty, not {text!r}")
    check_text("choices", "".join(texts))
    return Grammar(f"{HEADER}start: CHOICE\nCHOICE: {' | '.join(map(literal, dict.fromkeys(texts)))}", "choices")


def literal(text: str) -> str:
    """A text as a Lark string."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def inline_json(schema: Any) -> str:
    """A schema as a Lark expression."""
    if isinstance(schema, bool):
        schema = {} if schema else {"anyOf": []}
    # In ASCII, because half of a surrogate pair could not be handed over: the compiler is to refuse it.
    return "%json " + json.dumps({**schema, "x-guidance": {"whitespace_pattern": WHITE_SPACE}})
