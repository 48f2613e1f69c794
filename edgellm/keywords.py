"""The keyword arguments of `Model.generate` and `Model.chat`, defined once.

Two views of one list: a TypedDict tells type checkers and editors what ``**keywords`` may hold, and the dataclass below
it has the defaults and the checks. A new argument is a line in each, and one in the docstring of its method; a test
compares the two. What only `chat` takes goes into a pair that derives from this one.
"""

import dataclasses
import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from edgellm.chat import ChatOptions
from edgellm.errors import ArgumentError
from edgellm.sampling import LogitsProcessor, SamplingKeywords, SamplingParams
from edgellm.tools import Given, Tool, chosen, read_tools

Method = TypeVar("Method", bound=Callable[..., Any])
Arguments = TypeVar("Arguments", bound=SamplingParams)

OTHER_NAMES = {
    "gbnf": "grammar",
    "guided_choice": "choices",
    "guided_regex": "regex",
    "json_schema": "schema",
    "max_length": "max_tokens",
    "max_new_tokens": "max_tokens",
    "n_predict": "max_tokens",
    "num_predict": "max_tokens",
    "repeat_last_n": "penalty_last_n",
    "repeat_penalty": "repetition_penalty",
    "response_model": "schema",
    "stop_sequences": "stop",
    "stop_strings": "stop",
    "temp": "temperature",
}
"""What other runtimes call our arguments, where the spelling alone would not suggest ours."""


class GenerateKeywords(SamplingKeywords, total=False):
    """What `Model.generate` takes besides the prompt; `Model.chat` takes it too."""

    max_tokens: int | None
    stop: str | Iterable[str] | None
    parse_special: bool
    logprobs: int | None
    prompt_logprobs: int | None
    logits_processors: Sequence[LogitsProcessor]
    schema: Any
    regex: str | None
    grammar: str | None
    json: bool
    choices: Sequence[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateArguments(SamplingParams):
    """The same with defaults, the sampling settings checked."""

    max_tokens: int | None = None
    stop: str | Iterable[str] | None = None
    parse_special: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logits_processors: Sequence[LogitsProcessor] = ()
    schema: Any = None
    regex: str | None = None
    grammar: str | None = None
    json: bool = False
    choices: Sequence[str] | None = None

    @property
    def is_structured(self) -> bool:
        """Whether the text has to follow something."""
        return self.json or any(x is not None for x in (self.schema, self.regex, self.grammar, self.choices))


class ChatKeywords(GenerateKeywords, total=False):
    """What `Model.chat` and `Model.explain_prompt` take besides the messages."""

    tools: Sequence[Given] | None
    tool_choice: str | Mapping[str, Any] | None
    run_tools: bool
    max_tool_rounds: int
    documents: Sequence[Mapping[str, Any]] | None
    add_generation_prompt: bool | None
    continue_final_message: bool
    enable_thinking: bool | None
    reasoning_effort: str | None
    template_args: Mapping[str, Any] | None
    chat_template: str | None
    reply_format: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatArguments(GenerateArguments):
    """The same with defaults."""

    tools: Sequence[Given] | None = None
    tool_choice: str | Mapping[str, Any] | None = None
    run_tools: bool = False
    max_tool_rounds: int = 8
    documents: Sequence[Mapping[str, Any]] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    enable_thinking: bool | None = None
    reasoning_effort: str | None = None
    template_args: Mapping[str, Any] | None = None
    chat_template: str | None = None
    reply_format: str | None = None

    def functions(self) -> tuple[Tool, ...]:
        """Return the tools to run.  Raises ArgumentError if there are none, or any cannot be run."""
        given = read_tools(self.tools)
        for tool in given:
            if tool.function is None or inspect.iscoroutinefunction(tool.function):
                raise ArgumentError(f"run_tools can call plain functions only, which {tool.name!r} is not")
        if not given:
            raise ArgumentError("run_tools is set, but there are no tools")
        return given

    def options(self) -> ChatOptions:
        """Return those that decide how the conversation is written.  Raises ArgumentError."""
        tools = read_tools(self.tools)
        if chosen(self.tool_choice, tools) == "none":
            tools = ()
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(ChatOptions)}
        return ChatOptions(**{**own, "tools": [tool.schema for tool in tools] or None})


def accepts(arguments: type[SamplingParams]) -> Callable[[Method], Method]:
    """Show the fields of `arguments` in the signature of a method, in the place of its ``**keywords``."""
    fields = [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
        for field in dataclasses.fields(arguments)
    ]

    def decorate(method: Method) -> Method:
        plain = inspect.signature(method)
        own = [p for p in plain.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        cast(Any, method).__signature__ = plain.replace(parameters=[*own, *fields])
        return method

    return decorate


def settle(kind: type[Arguments], keywords: Mapping[str, Any]) -> Arguments:
    """Return the arguments that were given, completed and checked.

    Raises ArgumentError for values out of range, and TypeError, as Python does, for names that do not exist, with the
    name that was meant.
    """
    known = [field.name for field in dataclasses.fields(kind)]
    for name in keywords:
        if name not in known:
            meant = OTHER_NAMES.get(name) or next(iter(difflib.get_close_matches(name, known, 1)), None)
            advice = f"did you mean {meant}?" if meant in known else f"there are {', '.join(sorted(known))}"
            raise TypeError(f"there is no argument {name}: {advice}")
    return kind(**keywords)
