"""Where the tokens of a chat's prompt come from: `edgellm.Model.explain_prompt`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgellm.chat import ChatOptions
from edgellm.segments import strings, unused_marks

if TYPE_CHECKING:
    from edgellm.prompts import Prompts
    from edgellm.tokenizer import Tokenizer

TEMPLATE = "template"
_SPACE = re.compile(rb"\s*")
NEAR = 32
"""Bytes to look ahead for the text of a token."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One token of a prompt."""

    id: int
    text: str
    """What it stands for in the prompt; bytes that are part of a character as \\xNN."""
    special: bool
    """Whether it is a control token."""
    sources: tuple[str, ...]
    """What its text was written by: "template", "message 0 (user)", "tools", "documents"; none for a BOS added."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The tokens of a prompt, one by one.  ``str()`` is a table for people."""

    pieces: tuple[Piece, ...]

    @property
    def ids(self) -> list[int]:
        """The prompt as the model reads it."""
        return [piece.id for piece in self.pieces]

    def __str__(self) -> str:
        rows = [("id", "piece", "from")]
        for piece in self.pieces:
            words = ["special"] * piece.special + list(piece.sources)
            rows.append((str(piece.id), repr(piece.text)[1:-1] or "(nothing)", ", ".join(words)))
        ids, texts = (max(len(row[i]) for row in rows) for i in (0, 1))
        return "\n".join(f"{a:>{ids}}  {b:<{min(texts, 40)}}  {c}".rstrip() for a, b, c in rows)


def explain(prompts: Prompts, messages: Sequence[Mapping[str, Any]], options: ChatOptions) -> Explanation:
    """Encode a conversation and find out where each token comes from.  Raises what encoding raises."""
    ids = prompts.encode_chat(messages, options)
    template, given = prompts.template_for(options), (messages, options.tools, options.documents)
    text = options.render(template, *given)
    names = [*(f"message {i} ({message['role']})" for i, message in enumerate(messages)), "tools", "documents"]
    parts = [*messages, options.tools, options.documents]
    marks = list(unused_marks("\0".join([text, *strings(given)])))
    # Conversations of thousands of messages run out of marks; the last ones then share one.
    opening = [marks[min(i, len(marks) - 2)] for i in range(len(parts))]
    marked = [_marked(part, mark, marks[-1]) for part, mark in zip(parts, opening, strict=True)]
    written = options.render(template, marked[: len(messages)], marked[-2], marked[-1])
    sources = _by_marks(written, dict(zip(opening, names, strict=True)), marks[-1])
    if "".join(char for char, _ in sources) != text:
        # The template looks at how a text begins or ends, and took marked ones for something else.
        sources = _by_search(text, list(zip(names, map(strings, parts), strict=True)))
    spread = [(source, byte) for char, source in sources for byte in char.encode()]
    return Explanation(tuple(_pieces(prompts.tokenizer, ids, bytes(b for _, b in spread), [s for s, _ in spread])))


def _marked(value: Any, mark: str, end: str) -> Any:
    """A copy with marks around the words of each text; roles, kinds and names stay what templates compare them with."""
    if isinstance(value, str):
        return f"{mark}{value}{end}" if value else value
    if isinstance(value, Mapping):
        kept = ("role", "type", "id", "tool_call_id")
        return {key: item if key in kept else _marked(item, mark, end) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [_marked(item, mark, end) for item in value]
    return value


def _by_marks(text: str, names: Mapping[str, str], end: str) -> list[tuple[str, str]]:
    """The characters of a text with their sources, the marks taken out."""
    found, source = [], TEMPLATE
    for char in text:
        if char == end:
            source = TEMPLATE
        elif char in names:
            source = names[char]
        else:
            found.append((char, source))
    return found


def _by_search(text: str, parts: Sequence[tuple[str, Iterator[str]]]) -> list[tuple[str, str]]:
    """The same by looking for what each part says, one after the other."""
    sources, at = [TEMPLATE] * len(text), 0
    for name, said in parts:
        for words in said:
            found = re.compile(re.escape(words.strip())).search(text, at) if len(words.strip()) > 1 else None
            if found:
                sources[found.start() : found.end()] = [name] * len(found[0])
                at = found.end()
    return list(zip(text, sources, strict=True))


def _pieces(tokenizer: Tokenizer, ids: Sequence[int], text: bytes, sources: Sequence[str]) -> Iterator[Piece]:
    at, fresh = 0, True
    for token in ids:
        data, fresh = tokenizer.next_bytes(token, fresh, False)
        special = tokenizer.is_control(token)
        start, end = _place(data, text, at, 0 if special else NEAR)
        at = max(at, end)
        yield Piece(token, data.decode("utf-8", "backslashreplace"), special, tuple(dict.fromkeys(sources[start:end])))


def _place(data: bytes, text: bytes, at: int, near: int) -> tuple[int, int]:
    """Where in the text the bytes of a token are; an empty range if nowhere.

    Some control tokens swallow the white space after them, some vocabularies put a space before words or write
    characters in another way.
    """
    after_space = _SPACE.match(text, at).end()  # type: ignore[union-attr]  # it always matches
    for form in (data, data.lstrip(b" ")):
        for start in (at, after_space, text.find(form, at, at + near)):
            if form and start >= 0 and text.startswith(form, start):
                return start, start + len(form)
    return at, at
