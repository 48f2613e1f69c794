"""One turn of a conversation, from messages and arguments to what the engine and the reader of the reply need."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgellm.chat import harmony
from edgellm.chat.messages import message_text
from edgellm.chat.options import schemas_of
from edgellm.chat.parser import ReplyParser, lead_of
from edgellm.chat.recognise import RAW, ReplyFormat, recognise
from edgellm.constraints import Constraints
from edgellm.errors import ArgumentError, GrammarError
from edgellm.keywords import ChatArguments
from edgellm.prompts import Prompt, Prompts
from edgellm.reasoned import after_reasoning
from edgellm.sampling import Constraint
from edgellm.structured import Grammar, wanted
from edgellm.toolgrammar import tool_grammar
from edgellm.tools import Tool, chosen, read_tools

_log = logging.getLogger("edgellm")

Messages = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn to be generated."""

    prompt: Prompt
    parser: ReplyParser
    spelled: frozenset[int]
    """Control tokens that the parser reads as text."""
    constraint: Constraint | None
    """What the reply, or calls in it, may look like."""
    parse: Callable[[str], Any] | None = None
    """What makes the value of the answer."""


def check_messages(messages: object) -> None:
    """Raise ArgumentError for no messages at all; the rest is the template's to say."""
    if not isinstance(messages, (str, bytes)) and isinstance(messages, Sequence) and not messages:
        raise ArgumentError("messages is empty: give at least one message")


def prepare_turn(
    prompts: Prompts, constraints: Constraints, messages: Messages, asked: ChatArguments, fit: int | None
) -> Turn:
    """Write the conversation out, and decide how the reply is read.

    fit: leave out the oldest turns until the prompt has at most so many tokens.
    """
    options = asked.options()
    check_messages(messages)
    tools = read_tools(asked.tools) if options.tools else ()
    source = prompts.template_for(options).source
    if asked.is_structured and tools:
        raise ArgumentError("a reply cannot follow a schema or grammar and call tools: leave out one of them")
    format = recognise(source, asked.reply_format)
    prompt = prompts.prepare(messages, options) if fit is None else prompts.prepare_fitting(messages, fit, options)
    continued = message_text(messages[-1]) if options.continue_final_message else None
    grammar = wanted(asked.schema, asked.regex, asked.grammar, asked.json, asked.choices)
    if grammar is not None:
        if format.name == "harmony":
            prompt = prompts.extended(prompt, harmony.ANSWER)
        return _structured(prompts, constraints, prompt, format, grammar, asked, continued)
    lead = lead_of(prompt.text, format, continued)
    may_think = (format.anywhere and asked.enable_thinking is not False) or format.name == "harmony"
    thinks = may_think or lead.lstrip().startswith(format.thinking.open)
    return Turn(
        prompt,
        ReplyParser(format, schemas=schemas_of(options.tools), lead=lead),
        prompts.reply_tokens(format),
        _constraint(prompts, constraints, prompt, format, source, tools, asked.tool_choice, thinks, lead)
        if tools
        else None,
    )


def _structured(
    prompts: Prompts,
    constraints: Constraints,
    prompt: Prompt,
    format: ReplyFormat,
    grammar: Grammar,
    asked: ChatArguments,
    continued: str | None,
) -> Turn:
    """A turn whose answer follows a grammar.  The model may reason first, if it is one that does."""
    lead = lead_of(prompt.text, format, continued)
    opened = lead.lstrip().startswith(format.thinking.open)
    full = None
    if format.name != RAW and (opened or (not lead and format.anywhere and asked.enable_thinking is not False)):
        full = after_reasoning(grammar, format, prompts.tokenizer, opened=opened)
    if full is None:
        # An answer from its first character on.
        format, lead = recognise("", RAW), ""
    constraint = constraints.start(full or grammar, prompt.ids[-1])
    return Turn(prompt, ReplyParser(format, lead=lead), prompts.reply_tokens(format), constraint, grammar.value)


def _constraint(
    prompts: Prompts,
    constraints: Constraints,
    prompt: Prompt,
    format: ReplyFormat,
    source: str,
    tools: Sequence[Tool],
    tool_choice: object,
    thinks: bool,
    lead: str,
) -> Constraint | None:
    choice = chosen(tool_choice, tools)
    grammar = tool_grammar(format, source, tools, choice, thinks, prompts.tokenizer, lead)
    if grammar is None:
        if choice != "auto":
            raise ArgumentError(
                f"tool_choice {choice!r} cannot be enforced with replies in the format {format.name!r}: use 'auto'"
            )
        return None
    try:
        return constraints.start(grammar, prompt.ids[-1])
    except GrammarError as error:
        if choice != "auto":
            raise
        _log.warning("the model's calls will not be held to the schemas of the tools: %s", error)
        return None
