"""Tools that a model may call: Python functions, and schemas of anything else."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired

from edgellm.errors import ArgumentError, GrammarError
from edgellm.structured.types import read_value, type_schema

Schema = dict[str, Any]
Given = Mapping[str, Any] | Callable[..., Any]

_NAME = re.compile(r"[\w.:/-]{1,128}", re.ASCII)
_SECTION = re.compile(
    r"^(args|arguments|parameters|params|returns?|raises|yields|examples?|notes?):?\s*$", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Tool:
    """Something the model may call."""

    name: str
    description: str
    parameters: Schema
    """JSON schema of an object."""
    function: Callable[..., Any] | None = None
    read: Callable[[dict[str, Any]], dict[str, Any]] = dict
    """From JSON data to the arguments of the function, in its types.  Raises ValueError."""

    @property
    def schema(self) -> Schema:
        """The tool as chat templates want it."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}

    def call(self, arguments: dict[str, Any]) -> Any:
        """Call the function.  Raises ValueError for arguments that do not fit, and what the function raises."""
        assert self.function is not None
        return self.function(**self.read(arguments))


def read_tools(given: object) -> tuple[Tool, ...]:
    """Return tools given as functions with type annotations, or as JSON schemas.  Raises ArgumentError."""
    if given is None:
        return ()
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Sequence):
        raise ArgumentError(f"tools must be a list of functions and schemas, not {given!r:.60}")
    tools = tuple(_from_schema(one) if isinstance(one, Mapping) else _from_function(one) for one in given)
    names = [tool.name for tool in tools]
    for name in names:
        if names.count(name) > 1:
            raise ArgumentError(f"tools has two with the name {name!r}")
    return tools


def _from_schema(given: Mapping[str, Any]) -> Tool:
    function = given["function"] if isinstance(given.get("function"), Mapping) else given
    name, parameters = function.get("name"), function.get("parameters")
    if parameters is None:
        parameters = {"type": "object", "properties": {}}
    if not isinstance(parameters, Mapping):
        raise ArgumentError(f"tools: the parameters of {name!r} must be a JSON schema, not {parameters!r:.60}")
    return Tool(_checked(name), str(function.get("description") or ""), dict(parameters))


def _checked(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ArgumentError(f"tools: a tool needs a name of letters, digits and _.:/-, not {name!r}")
    return name


def _from_function(function: object) -> Tool:
    if not callable(function) or isinstance(function, type):
        raise ArgumentError(f"tools must hold functions and JSON schemas, not {function!r:.60}")
    name = _checked(getattr(function, "__name__", None))
    try:
        parameters = inspect.signature(function).parameters
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, ValueError) as error:
        raise ArgumentError(f"tools: the annotations of {name} cannot be read: {error}") from None
    for parameter in parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ArgumentError(f"tools: {name} has a parameter {parameter}, which cannot be given by its name")
    about, described = _documentation(inspect.getdoc(function) or "", tuple(parameters))
    kinds = {key: hints.get(key, Any) for key in parameters}
    try:
        schema, read = _schema(name, kinds, parameters)
    except GrammarError as error:
        raise ArgumentError(f"tools: {name}: {str(error).removeprefix('schema: ')}") from None
    for key, kind in kinds.items():
        words = next((m for m in getattr(kind, "__metadata__", ()) if isinstance(m, str)), described.get(key))
        if words:
            schema["properties"][key] = {**schema["properties"][key], "description": words}
    return Tool(name, about, schema, function, read)


def _schema(
    name: str, kinds: Mapping[str, Any], parameters: Mapping[str, inspect.Parameter]
) -> tuple[Schema, Callable[[dict[str, Any]], dict[str, Any]]]:
    """The schema of a function's parameters, and what makes its arguments."""
    optional = {key for key, parameter in parameters.items() if parameter.default is not parameter.empty}
    if any(map(_is_pydantic, kinds.values())):
        import pydantic

        fields: dict[str, Any] = {
            key: (kind, parameters[key].default if key in optional else ...) for key, kind in kinds.items()
        }
        model = pydantic.create_model(name, __config__={"extra": "forbid"}, **fields)
        return inlined(model.model_json_schema()), lambda data: {
            key: getattr(model.model_validate(data), key) for key in data
        }
    hints: dict[str, Any] = {key: NotRequired[kind] if key in optional else kind for key, kind in kinds.items()}
    record = typing.TypedDict(name, hints)  # type: ignore[misc]
    return inlined(type_schema(record)), lambda data: dict(read_value(record, data))


def _is_pydantic(kind: Any) -> bool:
    """Whether a pydantic model is part of a type."""
    return hasattr(kind, "model_json_schema") or any(map(_is_pydantic, typing.get_args(kind)))


def inlined(schema: Schema) -> Schema:
    """The same schema without references, which few templates follow, where it does not refer to itself."""
    definitions = schema.get("$defs", {})
    recursive: set[str] = set()

    def walk(node: Any, within: tuple[str, ...]) -> Any:
        if isinstance(node, list):
            return [walk(item, within) for item in node]
        if not isinstance(node, dict):
            return node
        name = str(node.get("$ref", "")).removeprefix("#/$defs/")
        if name in definitions:
            if name in within:
                recursive.add(name)
                return node
            return walk(definitions[name], (*within, name))
        found = {}
        for key, value in node.items():
            if key == "properties" and isinstance(value, dict):
                found[key] = {inner: walk(item, within) for inner, item in value.items()}
            elif key != "$defs" and not (key == "title" and isinstance(value, str)):
                found[key] = walk(value, within)
        return found

    result: Schema = walk(schema, ())
    if recursive:
        # What a definition refers to has to be there too.
        result["$defs"] = definitions
    return result


def _documentation(text: str, names: Sequence[str]) -> tuple[str, dict[str, str]]:
    """What a docstring says of the function and of each parameter, in any of the usual styles."""
    lines = text.splitlines()
    about: list[str] = []
    found: dict[str, str] = {}
    at, open_ = 0, True
    line_of = re.compile(
        rf"(\s*)(?::param\s+(?:\w+\s+)?|[-*]\s+)?({'|'.join(names) or '(?!)'})(?:\s*\([^)]*\))?\s*:\s*(.*)"
    )
    while at < len(lines):
        line = lines[at]
        at += 1
        match = line_of.fullmatch(line)
        if match is None:
            open_ = open_ and not _SECTION.match(line.strip()) and not line.startswith(":")
            about += [line] * open_
            continue
        open_ = False
        words = [match[3]]
        while at < len(lines) and lines[at].strip() and len(lines[at]) - len(lines[at].lstrip()) > len(match[1]):
            words.append(lines[at].strip())
            at += 1
        found.setdefault(match[2], " ".join(words).strip())
    return "\n".join(about).strip(), found


def result_text(value: object) -> str:
    """What a function returned, as text for the model: text as it is, everything else as JSON."""
    if isinstance(value, str):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if hasattr(value, "model_dump_json"):
        return str(value.model_dump_json())
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return str(value)


def chosen(choice: object, tools: Sequence[Tool]) -> str:
    """Return `tool_choice`, checked: "auto", "required", "none", or the name of the one tool to call."""
    if choice is None:
        return "auto"
    if isinstance(choice, Mapping):
        function = choice.get("function")
        choice = function.get("name") if isinstance(function, Mapping) else choice.get("name")
    names = [tool.name for tool in tools]
    if not isinstance(choice, str) or choice not in ("auto", "required", "none", *names):
        raise ArgumentError(
            f"tool_choice must be {', '.join(map(repr, ('auto', 'required', 'none', *names)))}, not {choice!r}"
        )
    if choice == "required" and not tools:
        raise ArgumentError("tool_choice is 'required', but there are no tools")
    return choice
