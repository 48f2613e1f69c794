"""Conversations as templates see them: plain data, copied, with text content as one string."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from edgellm.chat.limits import MAX_NESTING
from edgellm.errors import TemplateError


class NoText(str):
    """Content that is null: a template that asks sees None, one that does not ask sees empty text.

    Templates differ in what they expect of a turn that only calls tools. Some look for none, and many
    others fail on it or write the word "None" into the prompt.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return other is None or other == ""

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def plain(value: object, where: str, nesting: int = 0) -> Any:
    """A deep copy made only of dict, list, tuple, str, numbers, bool and None.

    A template then cannot change what belongs to the caller, nor reach a live object.

    Raises:
        TemplateError: the value holds anything else, or is nested endlessly. `where` names it in the message.
    """
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        # Also makes a plain string of subclasses, whose methods are foreign code.
        return str.__str__(value)
    if nesting >= MAX_NESTING:
        raise TemplateError(f"{where} is nested deeper than {MAX_NESTING} levels")
    if isinstance(value, Mapping):
        copy = {}
        for key, item in value.items():
            if not isinstance(key, (str, int, float, bool, type(None))):
                raise TemplateError(f"{where} has a key of type {type(key).__name__}; templates take text keys")
            copy[plain(key, where)] = plain(item, where, nesting + 1)
        return copy
    if isinstance(value, tuple):
        return tuple(plain(item, where, nesting + 1) for item in value)
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray, memoryview)):
        return [plain(item, where, nesting + 1) for item in value]
    raise TemplateError(f"{where} holds a {type(value).__name__}; templates take text, numbers, lists and mappings")


def conversation(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A copy of the messages whose content is a string.

    Raises:
        TemplateError: a message is not a mapping with a role, or has content that is not text.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise TemplateError(f"messages must be a list of messages, not {type(messages).__name__}")
    return [_message(message, f"message {number}") for number, message in enumerate(messages)]


def _message(message: object, where: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise TemplateError(f"{where} must be a mapping with a role and content, not {type(message).__name__}")
    copy: dict[str, Any] = plain(message, where)
    if not isinstance(copy.get("role"), str):
        raise TemplateError(f"{where} has no role")
    if "content" in copy:
        copy["content"] = _text(copy["content"], where)
    return copy


def message_text(message: Mapping[str, Any]) -> str:
    """The content of a message as one text.  Raises TemplateError."""
    return _text(plain(message.get("content"), "content"), "the message")


def _text(content: object, where: str) -> str:
    if content is None:
        return NoText()
    if isinstance(content, str):
        return content
    if not isinstance(content, (list, tuple)):
        raise TemplateError(f"the content of {where} must be text or a list of parts, not {type(content).__name__}")
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        if kind != "text":
            raise TemplateError(f"the content of {where} has a part of type {kind!r}; this model takes only text")
        text = part.get("text")
        if not isinstance(text, str):
            raise TemplateError(f"the content of {where} has a text part without text")
        texts.append(text)
    return "".join(texts)


def fit_arguments(turns: Sequence[dict[str, Any]], *, as_text: bool) -> None:
    """Write the arguments of all tool calls the one way a template takes them: as an object, or as JSON text.

    Nothing (null, empty text) means no arguments; text that is no JSON object stays as it is.
    """
    for turn in turns:
        calls = turn.get("tool_calls")
        for call in calls if isinstance(calls, (list, tuple)) else ():
            if isinstance(call, dict):
                holder = call["function"] if isinstance(call.get("function"), dict) else call
                if "arguments" in holder or holder is not call:
                    holder["arguments"] = (_as_text if as_text else _as_object)(holder.get("arguments"))


def _as_text(arguments: object) -> object:
    if isinstance(arguments, str):
        return arguments if arguments.strip() else "{}"
    return json.dumps(arguments or {}, ensure_ascii=False)


def _as_object(arguments: object) -> object:
    if isinstance(arguments, str):
        try:
            value = json.loads(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError):
            return arguments
        return value if isinstance(value, dict) else arguments
    return {} if arguments is None else arguments


def rename_reasoning(turns: Sequence[dict[str, Any]], name: str, *, alone: bool) -> None:
    """Give `reasoning_content` by the name that a template reads.

    alone: it refuses words beside reasoning where tools are called; the words then count as reasoning.
    """
    for turn in turns:
        if turn.get("reasoning_content") and name not in turn:
            turn[name] = turn["reasoning_content"]
            if alone and turn.get("tool_calls") and turn.get("content"):
                turn[name] += "\n\n" + turn["content"]
                turn["content"] = NoText()


def merge_system(turns: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put each system message in front of the user's message that follows, as for models that know no system role."""
    merged: list[dict[str, Any]] = []
    waiting: list[str] = []
    for turn in turns:
        if turn["role"] == "system":
            waiting.append(turn.get("content") or "")
        elif turn["role"] == "user" and waiting:
            merged.append({**turn, "content": "\n\n".join([*waiting, turn.get("content") or ""])})
            waiting = []
        else:
            merged.append(turn)
    if waiting:
        merged.append({"role": "user", "content": "\n\n".join(waiting)})
    return merged
