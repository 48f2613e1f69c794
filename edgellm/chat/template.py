"""A model's chat template: from messages to the text of a prompt."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import CodeType
from typing import Any

from edgellm.chat.limits import LimitError, Limits
from edgellm.chat.messages import conversation, plain
from edgellm.errors import ArgumentError, TemplateError

Messages = Sequence[Mapping[str, Any]]
_DEFAULT_LIMITS = Limits()


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
            messages: mappings with `role` and `content`; content is text, None or a list of text parts.
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
        turns = conversation(messages)
        mark = None
        if continue_final_message:
            if add_generation_prompt:
                raise ArgumentError("continue_final_message excludes add_generation_prompt: set one of them to False")
            mark = _mark_end(turns)
        values = {
            "bos_token": self.bos_token,
            "eos_token": self.eos_token,
            "tools": plain(tools, "tools"),
            "documents": plain(documents, "documents"),
            "add_generation_prompt": bool(add_generation_prompt),
            **{name: plain(value, name) for name, value in variables.items()},
            "messages": turns,
        }
        text = self._run(values, clock or datetime.now)
        return text if mark is None else self._cut(text, mark)

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
