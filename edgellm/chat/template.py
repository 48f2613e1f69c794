"""A model's chat template: from messages to the text of a prompt."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from types import CodeType
from typing import Any

from edgellm.chat.limits import LimitError, Limits
from edgellm.chat.messages import conversation, fit_arguments, merge_system, plain, rename_reasoning
from edgellm.chat.polyfill import LISTED_STYLES, STYLES, calls_as_content, list_tools, results_as_user
from edgellm.chat.probe import KEY, RESULT, VALUE, attempt, calling, lists_tools, takes_system, wants_text_arguments
from edgellm.chat.recognise import recognise
from edgellm.errors import ArgumentError, TemplateError

Messages = Sequence[Mapping[str, Any]]
_DEFAULT_LIMITS = Limits()

TOOL_VARIABLES = ("tools", "xml_tools")
"""What templates call the schemas of tools; SmolLM3's uses the second name."""


class ChatTemplate:
    """A Jinja chat template as model files carry it, rendered in a sandbox.

    The template is a program by a stranger. It sees plain copies of what it is given, reaches no Python
    object behind them, cannot load files, and works within `limits` of time, size and depth. The rest is
    what templates are written for: Jinja with `trim_blocks`, `lstrip_blocks`, `break` and `continue`,
    `raise_exception(text)`, `strftime_now(format)`, a `tojson` without HTML escapes, and `{% generation %}`.

    Making one never fails, so that a model whose template is broken can still complete plain text: the
    source is compiled at the first `render`. An instance may be used by several threads at once.
    """

    def __init__(
        self,
        source: str,
        *,
        bos_token: str = "",
        eos_token: str = "",
        name: str = "<template>",
        limits: Limits = _DEFAULT_LIMITS,
    ) -> None:
        self.source = source
        self.name = name
        self.bos_token = bos_token
        self.eos_token = eos_token
        self._limits = limits
        self._code: CodeType | None = None

    def __repr__(self) -> str:
        return f"ChatTemplate({self.name!r}, {len(self.source)} characters)"

    def render(
        self,
        messages: Messages,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        clock: Callable[[], datetime] | None = None,
        **variables: Any,
    ) -> str:
        """The prompt for a conversation.

        Args:
            messages: mappings with `role` and `content`; content is text, None or a list of text parts. Arguments
                of `tool_calls` may be an object or JSON text. If the template has no system role, a system message
                comes in front of the user's message that follows it.
            add_generation_prompt: end with the opening of an assistant turn.
            continue_final_message: end with the exact text of the last message, its turn left open.
            tools: JSON schemas of functions the model may call.
            documents: documents for retrieval, as the template defines them.
            clock: what `strftime_now` asks for the time; the local time by default.
            variables: further variables of the template, such as `enable_thinking`.

        Raises:
            TemplateError: the template has a syntax error (with line and column), fails, refuses the
                conversation (with the template's own words), or exceeds its limits.
            ArgumentError: a last message cannot be both finished and continued.
        """
        plain_tools = plain(tools, "tools")
        turns = self._fitted(conversation(messages), plain_tools)
        mark = None
        if continue_final_message:
            if add_generation_prompt:
                raise ArgumentError("continue_final_message excludes add_generation_prompt: set one of them to False")
            mark = _mark_end(turns)
        values = {
            **self._named_tools(plain_tools),
            "documents": plain(documents, "documents"),
            "add_generation_prompt": bool(add_generation_prompt),
            **{name: plain(value, name) for name, value in variables.items()},
        }
        text = self._write(turns, values, clock or datetime.now)
        return text if mark is None else self._cut(text, mark)

    @cached_property
    def variables(self) -> frozenset[str]:
        """The names of the variables the template reads; none if it has a syntax error."""
        from edgellm.chat.sandbox import Sandbox, SyntaxFault

        sandbox = Sandbox(self._limits)
        try:
            sandbox.translate(self.source)
        except SyntaxFault:
            return frozenset()
        return sandbox.variables(self.source)

    @cached_property
    def takes_system(self) -> bool:
        """Whether system messages reach the prompt.  If not, `render` puts them in front of the user's message."""
        return takes_system(self.write_exactly)

    @cached_property
    def lists_tools(self) -> bool:
        """Whether tools change the prompt.  If not, `render` describes them in the system message, where it can."""
        return lists_tools(self.write_exactly)

    @cached_property
    def _wants_text_arguments(self) -> bool:
        return wants_text_arguments(self.write_exactly)

    @cached_property
    def _example(self) -> str:
        """What it writes for a call and its result; nothing if it refuses them."""
        arguments: Any = f'{{"{KEY}": "{VALUE}"}}' if self._wants_text_arguments else {KEY: VALUE}
        return attempt(self.write_exactly, calling(arguments), tools=True) or ""

    @cached_property
    def _style(self) -> str:
        return recognise(self.source).name

    @cached_property
    def _reasoning_name(self) -> str | None:
        """What it calls the reasoning in a message, if that is not `reasoning_content`."""
        if "reasoning_content" in self.source:
            return None
        read = re.findall(r"\bm\w*(?:\.|\[['\"])(thinking|reasoning|thought)\b", self.source)
        return read[0] if read else None

    def _named_tools(self, tools: Any) -> dict[str, Any]:
        return {name: tools for name in TOOL_VARIABLES if name in self.variables or name == "tools"}

    def write_exactly(
        self, messages: list[dict[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None, **variables: Any
    ) -> str:
        """The prompt for plain messages, given to the template without any change.  Raises TemplateError."""
        values = {**self._named_tools(tools), "documents": None, "add_generation_prompt": True, **variables}
        return self._write(messages, values, datetime.now)

    def _fitted(self, turns: list[dict[str, Any]], tools: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
        """The messages in the form this template takes, as far as templates differ."""
        roles = {turn["role"] for turn in turns}
        if "developer" in roles and "developer" not in self.source:
            turns = [{**turn, "role": "system"} if turn["role"] == "developer" else turn for turn in turns]
        if any("reasoning_content" in turn for turn in turns) and self._reasoning_name:
            rename_reasoning(turns, self._reasoning_name, alone=self._style == "harmony")
        if any(turn.get("tool_calls") for turn in turns):
            fit_arguments(turns, as_text=self._wants_text_arguments)
            if self._style in STYLES and VALUE not in self._example:
                turns = calls_as_content(turns, self._style)
        if "tool" in roles and self._style in STYLES and RESULT not in self._example:
            turns = results_as_user(turns)
        if tools and self._style in LISTED_STYLES and not self.lists_tools:
            turns = list_tools(turns, tools, self._style)
        if any(turn["role"] == "system" for turn in turns) and not self.takes_system:
            turns = merge_system(turns)
        return turns

    def _write(self, turns: list[dict[str, Any]], values: Mapping[str, Any], clock: Callable[[], datetime]) -> str:
        return self._run({"bos_token": self.bos_token, "eos_token": self.eos_token, **values, "messages": turns}, clock)

    def _run(self, values: Mapping[str, object], clock: Callable[[], datetime]) -> str:
        # Here and not above: importing EdgeLLM must not import Jinja.
        from edgellm.chat.sandbox import Refused, Sandbox, SyntaxFault

        sandbox = Sandbox(self._limits, clock)
        try:
            # Two threads may both compile; the results are equal.
            self._code = code = self._code or sandbox.translate(self.source)
            return sandbox.run(code, values)
        except SyntaxFault as fault:
            place = f", line {fault.line}, column {fault.column}" if fault.line is not None else ""
            raise TemplateError(f"{self.name}{place}: {fault}") from fault
        except Refused as refusal:
            raise TemplateError(str(refusal)) from None
        except Exception as error:
            place = "".join(f", {note}" for note in getattr(error, "__notes__", ()))
            kind = "" if isinstance(error, LimitError) else f"{type(error).__name__}: "
            raise TemplateError(f"{self.name}{place}: {kind}{error}") from error

    def _cut(self, text: str, mark: str) -> str:
        end = text.rfind(mark)
        if end < 0:
            raise TemplateError(f"{self.name} does not write the last message, so it cannot be continued")
        return text[:end].replace(mark, "")


def _mark_end(turns: list[dict[str, Any]]) -> str:
    """Put a mark behind the last message's text, where the prompt will end."""
    if not turns or not isinstance(turns[-1].get("content"), str):
        raise ArgumentError("continue_final_message needs a last message with text")
    # Private-use characters, which no template trims as white space; more of them until the mark is unique.
    mark, known = "\ue0ff", json.dumps(turns, ensure_ascii=False)
    while mark in known:
        mark += "\ue0fe"
    turns[-1]["content"] += mark
    return mark
