"""Chat templates of files, described: what they can do, and what a conversation becomes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from edgellm.chat import ChatOptions, ChatTemplate
from edgellm.chat.lint import Findings, lint
from edgellm.chat.recognise import recognise
from edgellm.errors import EdgeLLMError, TemplateError
from edgellm.explain import explain
from edgellm.prompts import TEMPLATE_KEY, Prompts

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tell the weather of a place.",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string", "description": "A town."}},
            "required": ["place"],
        },
    },
}
_CALL = {"id": "call00001", "type": "function", "function": {"name": "get_weather", "arguments": {"place": "Oslo"}}}
TALK = (
    {"role": "system", "content": "You are helpful and brief."},
    {"role": "user", "content": "Hello!"},
    {"role": "assistant", "content": "Hello, what can I do for you?"},
    {"role": "user", "content": "How is the weather in Oslo?"},
)
TALK_WITH_TOOLS = (
    *TALK,
    {"role": "assistant", "content": "", "tool_calls": [_CALL]},
    {"role": "tool", "tool_call_id": "call00001", "name": "get_weather", "content": '{"sky": "clear", "celsius": 4}'},
)


def describe(
    path: str | PathLike[str],
    messages: Sequence[Mapping[str, Any]] | None = None,
    *,
    tokens: bool = False,
    **options: Any,
) -> list[dict[str, Any]]:
    """Describe each template of a GGUF file, or the one of a text file, as plain values.

    messages: what to render; by default a small conversation, with a tool if the template lists tools.
    tokens: also explain the prompt token by token, where the file has a vocabulary.
    options: arguments of `edgellm.chat.ChatOptions`.

    Each has a ``name``, its length in ``characters``, the findings of `edgellm.chat.lint`, its ``reply_format``, and
    a ``prompt`` or the ``problem`` that came up.  Raises what opening a damaged file raises, TemplateError for a file
    without a template, and ArgumentError.
    """
    asked = ChatOptions(**options)
    return [_one(name, template, messages, asked, prompts if tokens else None) for name, template, prompts in _of(path)]


def _of(path: str | PathLike[str]) -> Iterator[tuple[str, ChatTemplate, Prompts | None]]:
    """The templates of a file; a text file knows no tokens, so common ones stand for those it asks for."""
    from edgellm.gguf import open_model

    with open(path, "rb") as start:
        is_gguf = start.read(4) == b"GGUF"
    if not is_gguf:
        try:
            source = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise TemplateError(f"{path} is neither a GGUF file nor a template in UTF-8") from None
        yield "default", ChatTemplate(source, bos_token="<s>", eos_token="</s>", name=Path(path).name), None
        return
    with open_model(path) as file:
        prompts = Prompts(file.metadata, file.name)
        yield "default", prompts.template, prompts
        for key in file.metadata:
            name = key.removeprefix(TEMPLATE_KEY + ".")
            if name != key and isinstance(file.metadata[key], str):
                yield name, prompts.named_template(name), prompts


def _one(
    name: str,
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]] | None,
    options: ChatOptions,
    prompts: Prompts | None,
) -> dict[str, Any]:
    findings: Findings = lint(template)
    report: dict[str, Any] = {"name": name, "characters": len(template.source), **dataclasses.asdict(findings)}
    report["reply_format"] = recognise(template.source).name
    if messages is None:
        with_tools = findings.lists_tools and options.tools is None
        messages = TALK_WITH_TOOLS if with_tools and findings.results else TALK
        options = dataclasses.replace(options, tools=[WEATHER]) if with_tools else options
    try:
        report["prompt"] = options.render(template, messages, options.tools, options.documents)
        if prompts is not None and prompts.template_for(options) is template:
            report["tokens"] = str(explain(prompts, messages, options))
    except EdgeLLMError as error:
        report["problem"] = str(error)
    return report
