"""Grammars that keep a model's calls to the tools there are, and to the schemas of their parameters."""

from __future__ import annotations

import itertools
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from edgellm.chat.recognise import ReplyFormat
from edgellm.errors import GrammarError
from edgellm.structured import Grammar
from edgellm.structured.check import checked
from edgellm.structured.grammar import literal
from edgellm.structured.notation import Rules, call_arguments, gemma, python, python_keyword, written
from edgellm.structured.toolcalls import Json, Marked, Opening, Part, Pattern, Token, Trigger, call_grammar
from edgellm.tokenizer import Tokenizer
from edgellm.tools import Tool

_log = logging.getLogger("edgellm")

MAX_LISTED = 16
MAX_OPTIONAL = 4
"""A call with tags has one form for each choice of the parameters that may be left out: up to 16."""


@dataclass(frozen=True, slots=True)
class UpTo:
    """Any text, and then the text `end`, which does not occur in it."""

    end: str


@dataclass(frozen=True, slots=True)
class Quoted:
    """A tool's arguments in Gemma's notation, if that can say what the schema does, or else anything, up to `end`."""

    tool: Tool
    name: str
    quote: str
    end: str


Piece = Part | UpTo | Quoted
Fields = Mapping[str, Any]
Forms = Callable[[Sequence[Tool], int | None], Iterator[list[Piece]]]


@dataclass(frozen=True, slots=True)
class Shape:
    """How the calls of a format begin, and what follows."""

    trigger: str
    forms: Forms
    single: bool = False
    """Whether a reply ends with its first call."""
    opening: str = ""
    """What begins a call that nobody demanded, if the trigger means none elsewhere: a regular expression."""
    plain: str | None = None
    """What an answer begins with behind the trigger, which means a call only with the name of a tool behind it."""


def tool_grammar(
    format: ReplyFormat,
    source: str,
    tools: Sequence[Tool],
    choice: str,
    thinks: bool,
    tokenizer: Tokenizer,
    lead: str = "",
) -> Grammar | None:
    """The grammar of a reply in which tools may be called ("auto") or must be ("required", or a name).

    source: of the template.  thinks: whether the model may reason before it calls.
    lead: what of the prompt is the beginning of the reply.
    None where the format has no grammar; what the model writes is then only checked.
    """
    shape = _shape(format.name, source)
    if shape is None or (choice == "auto" and shape.opening and thinks):
        return None
    tools = [tool for tool in tools if choice in ("auto", "required", tool.name)]
    demanded = choice != "auto"
    most = 1 if shape.single or choice not in ("auto", "required") else None
    spelled = Spelling(format, tokenizer)
    (trigger,) = spelled.parts(shape.trigger) if len(spelled.parts(shape.trigger)) == 1 else (shape.trigger,)
    if not isinstance(trigger, (str, Token)):
        return None
    announced: Trigger = trigger
    if shape.opening and not demanded:
        announced = Opening(shape.opening)
    elif shape.plain is not None and isinstance(trigger, str):
        announced = Marked(trigger)
    return call_grammar(
        announced,
        [[piece for part in form for piece in spelled.parts(part)] for form in shape.forms(tools, most)],
        least=1 if demanded else 0,
        most=most,
        before=thinks or not demanded,
        after=not demanded and not shape.single,
        controls=spelled.ids,
        begun=shape.plain if lead == shape.trigger else None,
    )


class Spelling:
    """Texts with the control tokens in them set apart."""

    def __init__(self, format: ReplyFormat, tokenizer: Tokenizer) -> None:
        found = ((text, tokenizer.id_of(text)) for text in format.tokens)
        self._controls = {text: id for text, id in found if id is not None and tokenizer.is_control(id)}
        self._pattern = re.compile("|".join(map(re.escape, sorted(self._controls, key=len, reverse=True))) or "(?!)")
        self.ids = frozenset(self._controls.values())

    def parts(self, part: Piece) -> list[Part]:
        """The same part, cut at the control tokens in it."""
        if isinstance(part, UpTo):
            end = self.parts(part.end)
            if isinstance(end[0], Token):
                return [Pattern("(?s:.*)"), *end]
            # In one expression: a text by itself would take what can be the beginning of its end.
            return [Pattern(f"{_without(part.end.strip())}{re.escape(part.end.lstrip())}")]
        if isinstance(part, Quoted):
            notation = gemma(part.quote, part.end, self._controls.get(part.quote))
            rules = _arguments(part.tool, partial(written, notation, name=part.name))
            return [rules, *self.parts(part.end)] if rules else ["{", *self.parts(UpTo(part.end))]
        if not isinstance(part, str):
            return [part]
        found: list[Part] = []
        at = 0
        for match in self._pattern.finditer(part):
            found += [part[at : match.start()]] * (match.start() > at)
            found.append(Token(self._controls[match[0]]))
            at = match.end()
        return found + [part[at:]] * (at < len(part))


def parameters(tool: Tool) -> dict[str, Any]:
    """The schema of a tool's parameters as far as it can be enforced."""
    schema = {"type": "object", **tool.parameters}
    try:
        checked(schema)
    except GrammarError as error:
        _log.warning("the arguments of the tool %s will be an object, but not held to its schema: %s", tool.name, error)
        return {"type": "object"}
    return schema


def _each(before: str, after: str) -> Forms:
    """A name and an object; NAME stands for the name."""

    def forms(tools: Sequence[Tool], most: int | None) -> Iterator[list[Piece]]:
        for tool in tools:
            yield [before.replace("NAME", tool.name), Json(parameters(tool)), *([after] if after else [])]

    return forms


def _around(before: str, pattern: Pattern, middle: str, after: str = "") -> Forms:
    """A pattern, and then an object, between texts; NAME stands for the name."""

    def forms(tools: Sequence[Tool], most: int | None) -> Iterator[list[Piece]]:
        for tool in tools:
            first, second = before.replace("NAME", tool.name), middle.replace("NAME", tool.name)
            parts: list[Piece] = [first, pattern, second, Json(parameters(tool)), after]
            yield [part for part in parts if part != ""]

    return forms


def _quoted(before: str, quote: str, end: str) -> Forms:
    """Gemma's notation; NAME stands for the name."""

    def forms(tools: Sequence[Tool], most: int | None) -> Iterator[list[Piece]]:
        for i, tool in enumerate(tools):
            yield [before.replace("NAME", tool.name), Quoted(tool, f"tool_{i}", quote, end)]

    return forms


def _expressions(tools: Sequence[Tool], most: int | None) -> Iterator[list[Piece]]:
    """A list of calls as in Python, with the end of LFM2.  Behind a call that cannot be enforced anything may come."""
    end = "<|tool_call_end|>"
    notation = python(end)
    calls: list[str] = []
    lines: list[str] = []
    free: list[str] = []
    for i, tool in enumerate(tools):
        rules = _arguments(tool, partial(call_arguments, notation, name=f"tool_{i}", key=python_keyword))
        if rules is None:
            free.append(f"{tool.name}(")
        else:
            calls.append(f'{literal(tool.name + "(")} {rules.start} ")"')
            lines += rules.lines
    others: list[Piece] = []
    if calls:
        lines.append(f"listed: {' | '.join(calls)}")
        several = f"{{0,{(most or MAX_LISTED) - 1}}}"
        yield ["[", Rules(f"listed (comma listed){several}" if most != 1 else "listed", tuple(lines)), "]", end]
        others = [Rules(f"(listed comma){several}", tuple(lines))] if most != 1 else []
    for head in free:
        yield ["[", *others, head, UpTo(end)]


def _arguments(tool: Tool, rules: Callable[[Mapping[str, Any]], Rules]) -> Rules | None:
    """The rules for a tool's arguments; None where its notation cannot say what its schema does."""
    try:
        return rules(parameters(tool))
    except GrammarError as error:
        _log.warning("only the name of the tool %s will be enforced, because its schema has %s", tool.name, error)
        return None


def _addressed(tools: Sequence[Tool], most: int | None) -> Iterator[list[Piece]]:
    """Harmony: the name is in a header, which may say more in one order or another."""
    constrained = "<|constrain|>json"
    for tool in tools:
        for more in (f" {constrained}", f"<|channel|>commentary {constrained}", "<|channel|>commentary json", ""):
            yield [f"{tool.name}{more}<|message|>", Json(parameters(tool))]


def _listed(name: str, arguments: str, after: str, first: Fields | None = None, last: Fields | None = None) -> Forms:
    """A list of objects, with further members before and behind; without `name` the name is the key."""

    def forms(tools: Sequence[Tool], most: int | None) -> Iterator[list[Piece]]:
        items: list[Any] = []
        definitions: dict[str, Any] = {}
        for tool in tools:
            schema = parameters(tool)
            definitions |= schema.pop("$defs", {})
            own = {name: {"const": tool.name}, arguments: schema} if name else {tool.name: schema}
            fields = {**(first or {}), **own, **(last or {})}
            required = [key for key in fields if key not in (last or {})]
            items.append({"type": "object", "properties": fields, "required": required, "additionalProperties": False})
        calls = {"type": "array", "items": {"anyOf": items}, "minItems": 1, "maxItems": most or MAX_LISTED}
        whole = {**calls, **({"$defs": definitions} if definitions else {})}
        yield [Json(whole), *([after] if after else [])]

    return forms


def _tagged(head: str, key: str, value_end: str, close: str) -> Forms:
    """Values between tags; NAME and KEY stand for the names of the tool and of a parameter."""

    def forms(tools: Sequence[Tool], most: int | None) -> Iterator[list[Piece]]:
        for tool in tools:
            schema = parameters(tool)
            properties: Mapping[str, Any] = schema.get("properties") or {}
            required = set(schema.get("required") or ())
            optional = [name for name in properties if name not in required]
            if len(optional) > MAX_OPTIONAL or "$defs" in schema:
                yield [head.replace("NAME", tool.name), UpTo(close)]
                continue
            for n in range(len(optional) + 1):
                for left_out in itertools.combinations(optional, n):
                    parts: list[Piece] = [head.replace("NAME", tool.name)]
                    for name in properties:
                        if name not in left_out:
                            parts += _parameter(key.replace("KEY", name), properties[name], value_end)
                    yield [*parts, close]

    return forms


def _parameter(key: str, schema: Any, end: str) -> list[Piece]:
    """A parameter: texts stand as they are, everything else as JSON.  TEXT stands for whether it is a text."""
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    options = schema.get("enum") if isinstance(schema, Mapping) else None
    if isinstance(options, list) and options:
        texts = [option if isinstance(option, str) else json.dumps(option) for option in options]
        is_text = all(isinstance(option, str) for option in options)
        return [key.replace("TEXT", str(is_text).lower()), Pattern("|".join(map(re.escape, texts))), end]
    if kind == "string":
        return [key.replace("TEXT", "true"), UpTo(end)]
    return [key.replace("TEXT", "false"), Json(schema), end]


def _without(mark: str) -> str:
    """A regular expression for texts in which a mark does not occur."""
    steps = [f"{re.escape(mark[:i])}[^{re.escape(mark[i])}]" for i in range(len(mark))]
    return f"(?s:{'|'.join(steps)})*"


_ID = {"type": "string", "pattern": "^[a-zA-Z0-9]{9}$"}
_NUMBERED = {"tool_call_id": {"type": "string", "pattern": "^[0-9]{1,3}$"}}

_FIXED: dict[str, Shape] = {
    "hermes": Shape("<tool_call>", _each('\n{"name": "NAME", "arguments": ', "}\n</tool_call>")),
    "granite": Shape("<|tool_call|>", _listed("name", "arguments", "")),
    "nemotron": Shape("<TOOLCALL>", _listed("name", "arguments", "</TOOLCALL>")),
    "functools": Shape("functools", _listed("name", "arguments", "")),
    "command-r": Shape("<|START_ACTION|>", _listed("tool_name", "parameters", "<|END_ACTION|>", _NUMBERED)),
    "apertus": Shape("<|tools_prefix|>", _listed("", "", "<|tools_suffix|>")),
    "kimi-k2": Shape(
        "<|tool_call_begin|>",
        _around("functions.NAME:", Pattern("[0-9]{1,3}"), "<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    ),
    "solar": Shape(
        "<|tool_call:begin|>",
        _around("", Pattern("[a-zA-Z0-9]{9}"), "<|tool_call:name|>NAME<|tool_call:args|>", "<|tool_call:end|>"),
    ),
    "functionary": Shape("<function=", _each("NAME>", "</function>")),
    "functionary-v3.2": Shape(">>>", _each("NAME\n", ""), plain="all\n"),
    "llama": Shape('{"name":', _each(' "NAME", "parameters": ', "}"), single=True, opening=r'\s*\{\s*"name"\s*:'),
    "qwen-coder": Shape("<function=", _tagged("NAME>\n", "<parameter=KEY>\n", "\n</parameter>\n", "</function>")),
    "minimax-m2": Shape('<invoke name="', _tagged('NAME">\n', '<parameter name="KEY">', "</parameter>\n", "</invoke>")),
    "minicpm": Shape('<function name="', _tagged('NAME">', '<param name="KEY">', "</param>", "</function>")),
    "deepseek-dsml": Shape(
        '<｜DSML｜invoke name="',
        _tagged(
            'NAME">\n',
            '<｜DSML｜parameter name="KEY" string="TEXT">',
            "</｜DSML｜parameter>\n",
            "</｜DSML｜invoke>",
        ),
    ),
    "lfm2": Shape("<|tool_call_start|>", _expressions),
    "harmony": Shape(" to=functions.", _addressed, single=True),
}


def _shape(name: str, source: str) -> Shape | None:
    """The shape of a format; some have several, of which the template shows one."""
    if name == "mistral" and "[ARGS]" not in source:
        return Shape("[TOOL_CALLS]", _listed("name", "arguments", "", last={"id": _ID}))
    if name == "mistral" and "[CALL_ID]" not in source:
        return Shape("[TOOL_CALLS]", _each("NAME[ARGS]", ""))
    if name == "mistral":
        return Shape("[TOOL_CALLS]", _around("NAME[CALL_ID]", Pattern("[a-zA-Z0-9]{9}"), "[ARGS]", ""))
    if name == "deepseek" and "```json" in source:
        head = "function<｜tool▁sep｜>NAME\n```json\n"
        return Shape("<｜tool▁call▁begin｜>", _each(head, "\n```<｜tool▁call▁end｜>"))
    if name == "deepseek":
        return Shape("<｜tool▁call▁begin｜>", _each("NAME<｜tool▁sep｜>", "<｜tool▁call▁end｜>"))
    if name == "tool-calls" and "<tool_calls>[" in source:
        return Shape("<tool_calls>", _listed("name", "arguments", "</tool_calls>"))
    if name == "tool-calls":
        return Shape("<tool_calls>", _each('\n{"name": "NAME", "arguments": ', "}\n</tool_calls>"))
    if name == "gigachat" and "<|function_call|>" in source:
        return Shape("<|function_call|>", _each('{"name": "NAME", "arguments": ', "}"), single=True)
    if name == "gemma":
        if "<|tool_call>" in source:
            return Shape("<|tool_call>", _quoted("call:NAME", '<|"|>', "<tool_call|>"))
        return Shape("<start_function_call>", _quoted("call:NAME", "<escape>", "<end_function_call>"))
    if name == "glm":
        gap = "\n" if re.search(r"</arg_key>(\n|\\n)", source) else ""
        return Shape(
            "<tool_call>",
            _tagged(f"NAME{gap}", f"<arg_key>KEY</arg_key>{gap}<arg_value>", f"</arg_value>{gap}", "</tool_call>"),
        )
    return _FIXED.get(name)
