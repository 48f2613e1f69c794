"""What a template makes of a message, found by rendering small conversations with unmistakable words in them."""

from collections.abc import Callable, Sequence
from typing import Any

from edgellm.chat.messages import NoText
from edgellm.errors import TemplateError

Write = Callable[[list[dict[str, Any]], Sequence[dict[str, Any]] | None], str]
"""Renders messages and tools exactly as given, or raises TemplateError."""

SYSTEM, QUESTION, ANSWER = "needle-of-the-system", "needle-of-the-user", "needle-of-the-reply"
RESULT, THOUGHT = "needle-of-the-tool", "needle-of-the-thought"
NAME, KEY, VALUE, ID = "needle_name", "needle_key", "needle_value", "needle000"
"""Mistral's templates want ids of exactly nine letters and digits."""

USER = {"role": "user", "content": QUESTION}
REPLY = {"role": "assistant", "content": ANSWER}
TOOL = {
    "type": "function",
    "function": {
        "name": NAME,
        "description": "Try it.",
        "parameters": {
            "type": "object",
            "properties": {KEY: {"type": "string", "description": "Anything."}},
            "required": [KEY],
        },
    },
}


def attempt(write: Write, messages: Sequence[dict[str, Any]], tools: bool = False) -> str | None:
    """Return the text, or None if the template refuses or fails."""
    try:
        return write([dict(message) for message in messages], [TOOL] if tools else None)
    except TemplateError:
        return None


def takes_system(write: Write) -> bool:
    """Whether a system message changes the prompt.  Undecided (true) for templates that fail on any conversation."""
    alone = attempt(write, [USER])
    return alone is None or attempt(write, [{"role": "system", "content": SYSTEM}, USER]) not in (None, alone)


def lists_tools(write: Write) -> bool:
    """Whether the name of a tool reaches the prompt.  Undecided (true) for templates that fail on any conversation."""
    written = attempt(write, [USER], tools=True)
    return NAME in written if written is not None else attempt(write, [USER]) is None


def calling(arguments: object, *, calls: int = 1, result: bool = True) -> list[dict[str, Any]]:
    """A conversation in which the assistant has called the tool."""
    ids = [ID[:-1] + str(i) for i in range(calls)]
    function = {"name": NAME, "arguments": arguments}
    made = [{"id": id_, "type": "function", "function": function} for id_ in ids]
    results = [{"role": "tool", "tool_call_id": id_, "name": NAME, "content": RESULT} for id_ in ids]
    return [USER, {"role": "assistant", "content": NoText(), "tool_calls": made}, *(results if result else [])]


def wants_text_arguments(write: Write) -> bool:
    """Whether arguments of earlier tool calls must be given as JSON text, as an object fails or shows as Python."""
    written = attempt(write, calling({KEY: VALUE}), tools=True)
    if written is not None and f"{{'{KEY}'" not in written:
        return False
    return f'{{"{KEY}"' in (attempt(write, calling(f'{{"{KEY}": "{VALUE}"}}'), tools=True) or "")
