"""Free text in which calls may begin: `call_grammar`, for tools and whatever else a trigger announces.

    call_grammar("<tool_call>", [["\\n", Json(schema), "\\n</tool_call>"]])

Text is free until the trigger. From there on it must be one of the calls, a sequence of parts, to its end; then it is
free again, or ends. The trigger is a text, which may also come about in pieces, a control token, or what a text begins
with.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgellm.errors import ArgumentError, GrammarError
from edgellm.structured.check import checked
from edgellm.structured.grammar import HEADER, Grammar, check_text, inline_json, literal, regex_body
from edgellm.structured.notation import Rules

MAX_CALLS = 500


@dataclass(frozen=True, slots=True)
class Token:
    """A control token, by its id."""

    id: int


@dataclass(frozen=True, slots=True)
class Opening:
    """A trigger that means a call only at the beginning of a text, or right behind a control token."""

    regex: str


@dataclass(frozen=True, slots=True)
class Marked:
    """A trigger that means a call only together with the text that one of the calls begins with."""

    mark: str


@dataclass(frozen=True, slots=True)
class Json:
    """JSON that fits a schema."""

    schema: Mapping[str, Any] | bool


@dataclass(frozen=True, slots=True)
class Pattern:
    """A text that matches a regular expression, as much of it as there is."""

    regex: str


Part = str | Token | Json | Pattern | Rules
"""A piece of a call; a string is a text as it stands."""
Trigger = str | Token | Opening | Marked


def call_grammar(
    trigger: Trigger,
    calls: Sequence[Sequence[Part]],
    *,
    least: int = 0,
    most: int | None = None,
    before: bool = True,
    after: bool = True,
    controls: Iterable[int] = (),
    begun: str | None = None,
) -> Grammar:
    """A text with `least` to `most` calls, each beginning with the trigger and going on as one of `calls`.

    before: any text may come before the first call; False: white space only.
    after: any text may come after a call; False: white space, other calls, or the end, which comes by itself after the
        only call that there may be.
    controls: ids of control tokens that may occur in free text, such as those around a model's reasoning.
    begun: if given, the trigger of the first call is already there; if no call has to be, the text may also begin with
        `begun` and go on with anything.

    With ``least=0`` a text without the trigger is free, whatever the other arguments say. The calls are not parsed:
    the value of the text is the text. Raises GrammarError for a schema that cannot be used, ArgumentError for values
    that make no sense.
    """
    if not trigger or not calls:
        raise ArgumentError("a call needs a trigger, and at least one form")
    if len(calls) > MAX_CALLS:
        raise GrammarError(f"there are {len(calls)} forms of calls, more than the limit of {MAX_CALLS}")
    if isinstance(trigger, Opening) and (most != 1 or not before or after):
        raise ArgumentError("what a text begins with is one call, and nothing comes after it")
    if least < 0 or (most is not None and most < max(1, least)):
        raise ArgumentError(f"there cannot be {least} to {most} calls")
    lines = [f"call_{i}: {' '.join(_part(part) for part in parts)}" for i, parts in enumerate(calls)]
    lines += [
        f"body: {' | '.join(f'call_{i}' for i in range(len(calls)))}",
        r"SPACE: /[\x20\t\r\n]{1,20}/",
        *dict.fromkeys(line for parts in calls for part in parts if isinstance(part, Rules) for line in part.lines),
    ]
    if isinstance(trigger, Marked):
        lines += _marked(trigger.mark, calls, frozenset(controls))
    else:
        lines += [*free_text(trigger, frozenset(controls)), "found: head body"]
    if not isinstance(trigger, Opening):
        lines.append(f"next: SPACE? {_part(trigger.mark if isinstance(trigger, Marked) else trigger)} body")
    later = "found" if after else "next"
    start = "found" if before else "next"
    if begun is not None:
        start = "body" if least else f"(body | {_part(begun)})"
    if most != 1:
        start += f" {later}{{{max(0, least - 1)},{'' if most is None else most - 1}}}"
    if after:
        start += " rest"
    elif most != 1:
        start += " SPACE?"
    lines.append(f"start: {start}" if least or begun is not None else f"start: {start} | rest")
    return Grammar(HEADER + "\n".join(lines), "tools")


def free_text(trigger: str | Token | Opening, controls: frozenset[int]) -> list[str]:
    """The rules `head`, free text up to and with the first trigger, and `rest`, free text without one.

    controls: ids of control tokens that may occur in it.
    """
    allowed = ",".join(map(str, sorted(controls - {trigger.id} if isinstance(trigger, Token) else controls)))
    lines = [f"skip: FREE <[{allowed}]>", "rest: skip* FREE"] if allowed else ["rest: FREE"]
    skip = "skip* " if allowed else ""
    if isinstance(trigger, Token):
        return [*lines, "FREE: /(?s:.*)/", f"head: {skip}FREE {_part(trigger)}"]
    if isinstance(trigger, Opening):
        return [
            *lines,
            f"FREE: /(?s:.*)/ & ~/(?:{trigger.regex})(?s:.*)/",
            f"OPENING: /{trigger.regex}/",
            f"head: {skip}OPENING",
        ]
    lines.append(f"FREE: /(?s:.*)/ & ~/(?s:.*){_escaped(check_text('trigger', trigger))}(?s:.*)/")
    return [*lines, f"words[lazy]: FREE {literal(trigger)}", f"head: {skip}words"]


def _marked(mark: str, calls: Sequence[Sequence[Part]], controls: frozenset[int]) -> list[str]:
    """The rules `found`, free text and the first call in it, and `rest`, as in `free_text`."""
    heads = [mark + check_text("the beginning of a call", parts[0]) for parts in calls]
    allowed = ",".join(map(str, sorted(controls)))
    skip = "skip* " if allowed else ""
    return [
        *([f"skip: FREE <[{allowed}]>"] if allowed else []),
        f"rest: {skip}FREE",
        f"FREE: /(?s:.*)/ & ~/(?s:.*)({'|'.join(map(_escaped, heads))})(?s:.*)/",
        *(f"words_{i}[lazy]: FREE {literal(head)}" for i, head in enumerate(heads)),
        *(f"found_{i}: {skip}words_{i} {' '.join(map(_part, parts[1:]))}" for i, parts in enumerate(calls)),
        f"found: {' | '.join(f'found_{i}' for i in range(len(calls)))}",
    ]


def _escaped(text: str) -> str:
    """A text as a regular expression that is safe between slashes."""
    return re.sub(r"[^A-Za-z0-9]", lambda found: f"\\x{{{ord(found.group()):X}}}", text)


def _part(part: Part) -> str:
    if isinstance(part, str):
        return literal(check_text("part", part))
    if isinstance(part, Token):
        return f"<[{part.id}]>"
    if isinstance(part, Json):
        return inline_json(checked(part.schema))
    if isinstance(part, Rules):
        return part.start
    return regex_body(part.regex)
