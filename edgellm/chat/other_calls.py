"""Calls written as Python expressions, and in Gemma's notation."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from typing import Any

from edgellm.chat.events import Sink
from edgellm.chat.reader import Parse, Reader

MAX_EXPRESSION = 200_000
MAX_NESTING = 100
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_CONSTANTS = {"true": True, "false": False, "null": None, "none": None}
_QUOTED = re.compile(r"""'[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*\"""", re.DOTALL)
_FIRST_CALL = re.compile(r"\s*[A-Za-z_][\w.]*\s*")


def read_python(reader: Reader, sink: Sink, end: str | None, *, opened: str = "[") -> Parse[bool]:
    """Read ``[f(a=1), g()]`` up to the mark `end`; without one, up to the bracket.  Returns whether there was a call.

    opened: what has to come first; "" for a call without brackets, which ends with the text.
    """
    reader.checkpoint()
    parts: list[str] = []
    yield from reader.space()
    if opened and end is None:
        # Only what begins like a call is worth waiting for its end.
        good = bool((yield from reader.accept(opened)))
        good = good and (yield from reader.until(("(",), parts.append, limit=100, keep=True)) is not None
        if not good or not _FIRST_CALL.fullmatch("".join(parts)):
            reader.rewind()
            return False
        parts.insert(0, opened)
        yield from _to_bracket(reader, parts)
    elif end is None:
        yield from reader.rest(parts.append)
    else:
        yield from reader.until((end,), parts.append)
    calls = list(_expressions("".join(parts)))
    if not calls:
        reader.rewind()
        return False
    reader.commit()
    for name, arguments in calls:
        sink.begin_call(name)
        sink.write_arguments(json.dumps(arguments, ensure_ascii=False))
        sink.end_call(complete=True)
    return True


def _to_bracket(reader: Reader, parts: list[str]) -> Parse[None]:
    """Read on until the first bracket is closed, quotes respected."""
    depth, quote = 1, ""
    while depth:
        char = yield from reader.peek()
        if not char:
            return
        yield from reader.accept(char)
        parts.append(char)
        if quote:
            if char == "\\":
                escaped = yield from reader.peek()
                yield from reader.accept(*[escaped] * bool(escaped))
                parts.append(escaped)
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1


def _expressions(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The calls in a Python expression; none if it is anything else."""
    if len(text) > MAX_EXPRESSION:
        return
    try:
        # Models break lines in texts, which Python allows only in triple quotes.
        text = _QUOTED.sub(lambda found: found[0].replace("\n", "\\n"), text)
        tree = ast.parse(text.strip(), mode="eval").body
        nodes = tree.elts if isinstance(tree, (ast.List, ast.Tuple)) else [tree]
        found = [_call(node) for node in nodes]
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return
    yield from found


def _call(node: ast.expr) -> tuple[str, dict[str, Any]]:
    if not isinstance(node, ast.Call) or node.args:
        raise ValueError("no call with named arguments")
    # Llama's built-in tools are called as brave_search.call(query="…").
    name = ast.unparse(node.func).removesuffix(".call")
    if not _NAME.fullmatch(name):
        raise ValueError("no function with a name")
    arguments = {keyword.arg: _value(keyword.value) for keyword in node.keywords}
    if None in arguments:
        raise ValueError("arguments without names")
    json.dumps(arguments)
    return name, {str(key): value for key, value in arguments.items()}


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Name(id=name) if name.lower() in _CONSTANTS:
            return _CONSTANTS[name.lower()]
        case ast.Dict(keys=keys, values=values):
            return {str(_value(key)) if key else "": _value(value) for key, value in zip(keys, values, strict=True)}
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            return [_value(item) for item in items]
    return ast.literal_eval(node)


def read_gemma(reader: Reader, sink: Sink, end: str, quote: str) -> Parse[bool]:
    """Read ``call:name{key:value}`` up to the mark `end`, where texts stand between two of `quote`."""
    reader.checkpoint()
    parts: list[str] = []
    closed = yield from reader.until((end,), parts.append)
    text = "".join(parts).strip()
    found = re.match(r"(?:call:)?([\w.:/-]+)\s*(?=\{)", text)
    if found is None:
        reader.rewind()
        return False
    sink.begin_call(found[1])
    try:
        value, rest = _Notation(quote).read(text[found.end() :])
    except ValueError:
        value, rest = None, ""
    if closed and not rest.strip() and isinstance(value, dict):
        sink.write_arguments(json.dumps(value, ensure_ascii=False))
        sink.end_call(complete=True)
    else:
        sink.write_arguments(text[found.end() :])
        sink.end_call(complete=closed is not None)
    reader.commit()
    return True


class _Notation:
    """Gemma's notation: JSON with keys and numbers as they are, and texts between marks."""

    def __init__(self, quote: str) -> None:
        self._quote = quote
        self._bare = re.compile(rf"(?:(?!{re.escape(quote)})[^,{{}}\[\]])*")

    def read(self, text: str, nesting: int = 0) -> tuple[Any, str]:
        """The value at the start of a text, and what follows it."""
        text = text.lstrip()
        if nesting > MAX_NESTING:
            raise ValueError("nested too deeply")
        if text.startswith(self._quote):
            value, _, rest = text[len(self._quote) :].partition(self._quote)
            return value, rest
        if text.startswith("["):
            items, text = [], text[1:].lstrip()
            while text and not text.startswith("]"):
                item, text = self.read(text, nesting + 1)
                items.append(item)
                text = text.lstrip().removeprefix(",").lstrip()
            return items, text[1:]
        if text.startswith("{"):
            return self._object(text[1:].lstrip(), nesting)
        found = self._bare.match(text)
        bare = found[0] if found else ""
        return _scalar(bare.strip()), text[max(len(bare), 1) :]

    def _object(self, text: str, nesting: int) -> tuple[dict[str, Any], str]:
        members: dict[str, Any] = {}
        while text and not text.startswith("}"):
            if text.startswith(self._quote):
                key, _, text = text[len(self._quote) :].partition(self._quote)
                text = text.lstrip().removeprefix(":")
            else:
                key, _, text = text.partition(":")
            members[key.strip()], text = self.read(text, nesting + 1)
            text = text.lstrip().removeprefix(",").lstrip()
        return members, text[1:]


def _scalar(word: str) -> Any:
    if word.lower() in _CONSTANTS:
        return _CONSTANTS[word.lower()]
    try:
        return json.loads(word)
    except ValueError:
        return word
