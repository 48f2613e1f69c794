"""GBNF, llama.cpp's notation for grammars, as Lark.

A rule is ``name ::= alternatives``; it ends where the next begins. Texts are in double quotes, sets of characters in
brackets, ``.`` is any character, ``* + ? {n} {n,} {n,m}`` repeat, ``#`` begins a comment. ``<name>`` and ``<[id]>`` are
tokens that are no text. The text follows the rule ``root``.

Rules that a regular expression could replace become terminals: one step of the lexer instead of one of the parser for
each character.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from edgellm.errors import GrammarError
from edgellm.structured.grammar import literal


class Piece(NamedTuple):
    """A part of a rule: ``kind`` is the group of the token it came from, ``text`` its Lark, or a rule's own name."""

    kind: str
    text: str


Body = list[Piece]

_TOKEN = re.compile(
    r"""
    (?P<space>(?:\s|\#[^\n]*)+)
    | (?P<define>(?P<name>[A-Za-z0-9_-]+)[ \t]*::=)
    | (?P<rule>[A-Za-z0-9_-]+)
    | "(?P<text>(?:[^"\\\n]|\\.)*)"
    | \[(?P<set>(?:[^\]\\\n]|\\.)*)\]
    | (?P<token><\[[0-9]+\]>|<[^\s<>\[\]]+>)
    | (?P<repeat>[*+?]|\{\s*[0-9]+\s*(?:,\s*[0-9]*\s*)?\})
    | (?P<mark>[().|])
    """,
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)", re.DOTALL)
_NAMED = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "[": "[", "]": "]"}


def translate(source: str) -> str:
    """The grammar as Lark. Raises GrammarError with the line of what is wrong."""
    rules: dict[str, Body] = {}
    used: dict[str, int] = {}
    body: Body | None = None
    depth = 0
    for at, token in _tokens(source):
        kind = token.lastgroup
        if kind == "space":
            continue
        if kind == "define":
            name = token["name"]
            if name in rules:
                raise _error(source, at, f"rule {name} is defined twice")
            if depth:
                raise _error(source, at, "a parenthesis is not closed before this rule")
            body = rules[name] = []
        elif body is None:
            raise _error(source, at, "expected a rule such as `root ::= …`")
        elif kind == "repeat" and (not body or body[-1].text in ("(", "|")):
            raise _error(source, at, f"{token.group()} has nothing to repeat")
        else:
            depth += (token.group() == "(") - (token.group() == ")")
            if depth < 0:
                raise _error(source, at, "there is no parenthesis to close")
            if kind == "rule":
                used.setdefault(token.group(), at)
            body.append(_piece(source, at, token))
    if depth:
        raise _error(source, len(source), "a parenthesis is not closed")
    for name, at in used.items():
        if name not in rules:
            raise _error(source, at, f"rule {name} is not defined")
    if "root" not in rules:
        raise GrammarError("grammar: GBNF begins with the rule root, which is not defined")
    regular = _regular(rules)
    names = {name: _lark_name(name, name in regular) for name in rules}
    lines = [f"{names[name]}: {_joined(body, names)}" for name, body in rules.items()]
    return "\n".join([f"start: {names['root']}", *lines, ""])


def _regular(rules: dict[str, Body]) -> set[str]:
    """The rules that refer to no token and, even indirectly, not to themselves."""
    users: dict[str, list[str]] = {name: [] for name in rules}
    open_references: dict[str, int] = {}
    for name, body in rules.items():
        references = {piece.text for piece in body if piece.kind == "rule"}
        open_references[name] = len(references) + any(piece.kind == "token" for piece in body)
        for reference in references:
            users[reference].append(name)
    ready = [name for name, count in open_references.items() if count == 0]
    found = set()
    while ready:
        name = ready.pop()
        found.add(name)
        for user in users[name]:
            open_references[user] -= 1
            if open_references[user] == 0:
                ready.append(user)
    return found


def _tokens(source: str) -> Iterator[tuple[int, re.Match[str]]]:
    at = 0
    while at < len(source):
        token = _TOKEN.match(source, at)
        if token is None:
            raise _error(source, at, f"unexpected {source[at : at + 20].splitlines()[0]!r}")
        yield at, token
        at = token.end()


def _piece(source: str, at: int, token: re.Match[str]) -> Piece:
    kind, text = token.lastgroup or "", token.group()
    if kind == "text":
        text = literal("".join(_characters(source, at, token["text"])))
    elif kind == "set":
        text = _set(source, at, token["set"])
    elif kind == "repeat":
        text = re.sub(r"\s", "", text)
    return Piece(kind, "/(?s:.)/" if text == "." else text)


def _lark_name(name: str, terminal: bool) -> str:
    """A name that no other name becomes: Lark tells terminals from rules by their letters' case."""
    plain = re.sub(r"[A-Z_-]", lambda found: f"_{ord(found.group()):x}_", name)
    return f"T_{plain.upper()}" if terminal else f"r_{plain}"


def _joined(body: Body, names: dict[str, str]) -> str:
    """The pieces of a rule, empty alternatives made visible."""
    parts = [names[piece.text] if piece.kind == "rule" else piece.text for piece in body]
    shown: list[str] = []
    for previous, part in zip(["|", *parts], [*parts, "|"], strict=True):
        if previous in ("|", "(") and part in ("|", ")"):
            shown.append('""')
        shown.append(part)
    return " ".join(shown[:-1])


def _characters(source: str, at: int, text: str) -> Iterator[str]:
    """The characters that a quoted text or a set spells."""
    position = 0
    while position < len(text):
        escape = _ESCAPE.match(text, position)
        if escape is None:
            yield text[position]
            position += 1
            continue
        code = escape[1]
        if len(code) > 1:
            number = int(code[1:], 16)
            if number > 0x10FFFF or 0xD800 <= number < 0xE000:
                raise _error(source, at, f"\\{code} is no character")
            yield chr(number)
        elif code in _NAMED:
            yield _NAMED[code]
        else:
            raise _error(source, at, f"unknown escape \\{code}")
        position = escape.end()


def _set(source: str, at: int, text: str) -> str:
    negated = text.startswith("^")
    text = text.removeprefix("^")
    raw = [bool(_ESCAPE.match(match.group())) for match in re.finditer(r"\\(?:x..|u.{4}|U.{8}|.)|.", text, re.DOTALL)]
    chars = list(_characters(source, at, text))
    if not chars:
        if negated:
            return "/(?s:.)/"
        raise _error(source, at, "[] holds no character")
    ranges: list[str] = []
    i = 0
    while i < len(chars):
        if i + 2 < len(chars) and chars[i + 1] == "-" and not raw[i + 1]:
            if chars[i] > chars[i + 2]:
                raise _error(source, at, f"{chars[i]}-{chars[i + 2]} is no range: its end comes before its start")
            ranges.append(f"{_code(chars[i])}-{_code(chars[i + 2])}")
            i += 3
        else:
            ranges.append(_code(chars[i]))
            i += 1
    return f"/[{'^' if negated else ''}{''.join(ranges)}]/"


def _code(char: str) -> str:
    return char if char.isascii() and char.isalnum() else f"\\x{{{ord(char):X}}}"


def _error(source: str, at: int, message: str) -> GrammarError:
    return GrammarError(f"grammar, line {source.count(chr(10), 0, at) + 1}: {message}")
