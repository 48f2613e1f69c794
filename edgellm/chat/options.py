"""What a caller can say about how a conversation is written out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgellm.chat.template import TOOL_VARIABLES, ChatTemplate, Messages
from edgellm.errors import ArgumentError

RESERVED = frozenset({"messages", "documents", "add_generation_prompt", "continue_final_message", *TOOL_VARIABLES})
"""Variables of templates that have arguments of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """Arguments of a chat template besides the messages; see `edgellm.Model.chat`.  Raises ArgumentError."""

    tools: Sequence[Mapping[str, Any]] | None = None
    documents: Sequence[Mapping[str, Any]] | None = None
    add_generation_prompt: bool | None = None
    """None: unless the last message is to be continued."""
    continue_final_message: bool = False
    enable_thinking: bool | None = None
    reasoning_effort: str | None = None
    template_args: Mapping[str, Any] | None = None
    chat_template: str | None = None
    """A Jinja template to use in the place of the file's."""
    parse_special: bool = False

    def __post_init__(self) -> None:
        for name in ("add_generation_prompt", "continue_final_message", "enable_thinking", "parse_special"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, bool):
                raise ArgumentError(f"{name} must be True or False, not {value!r}")
        for name, example in (("reasoning_effort", "such as 'low'"), ("chat_template", "in Jinja")):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise ArgumentError(f"{name} must be text {example}, not {value!r:.60}")
        for name in ("tools", "documents"):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Sequence):
                raise ArgumentError(f"{name} must be a list of mappings, not {value!r:.60}")
            for item in value:
                if not isinstance(item, Mapping):
                    raise ArgumentError(f"{name} must be a list of mappings, but has {item!r:.60}")
        if self.template_args is not None and not isinstance(self.template_args, Mapping):
            raise ArgumentError(f"template_args must be a mapping of names to values, not {self.template_args!r:.60}")
        for name in self.template_args or ():
            if not isinstance(name, str) or name in RESERVED:
                raise ArgumentError(f"template_args must not have {name!r}: it has an argument of its own")

    def render(
        self,
        template: ChatTemplate,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]] | None,
        documents: Sequence[Mapping[str, Any]] | None,
    ) -> str:
        """Return the prompt; texts come as arguments, because callers may have marked them.  Raises TemplateError."""
        add = self.add_generation_prompt
        return template.render(
            messages,
            tools=tools or None,
            documents=documents or None,
            add_generation_prompt=not self.continue_final_message if add is None else add,
            continue_final_message=self.continue_final_message,
            **self.variables(template),
        )

    def variables(self, template: ChatTemplate) -> dict[str, Any]:
        """Return the further variables for a template."""
        found: dict[str, Any] = {}
        if self.enable_thinking is not None:
            found["enable_thinking"] = self.enable_thinking
            if "thinking" in template.variables:
                found["thinking"] = self.enable_thinking
            if "thinking_budget" in template.variables and not self.enable_thinking:
                found["thinking_budget"] = 0
        if self.reasoning_effort is not None:
            found["reasoning_effort"] = self.reasoning_effort
        return {**found, **(self.template_args or {})}


def schemas_of(tools: Sequence[Mapping[str, Any]] | None) -> dict[str, Mapping[str, Any]] | None:
    """The schemas of the parameters of tools by name; None without tools."""
    if not tools:
        return None
    functions = [tool["function"] if isinstance(tool.get("function"), Mapping) else tool for tool in tools]
    return {str(function.get("name")): function.get("parameters") or {} for function in functions}
