"""Tools for templates that do not know them, or not all of them: written into messages of the roles they know."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

Turns = list[dict[str, Any]]

STYLES = ("hermes", "lfm2", "granite")
"""Formats in which calls can be written here."""
LISTED_STYLES = (*STYLES, "deepseek")
"""Formats of which an example can be shown here."""

_INTRODUCTION = """You may call these functions to help with the user's request. Their JSON schemas, one a line:

{tools}

To call a function, reply with this and nothing after it, with its name and its arguments put in:

{example}

You will be given what the function returns."""

_DEEPSEEK = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"


def list_tools(turns: Turns, tools: Sequence[Mapping[str, Any]], style: str) -> Turns:
    """Describe the tools in the system message, which comes first if there was none."""
    lines = "\n".join(json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in tools)
    example = _DEEPSEEK if style == "deepseek" else spell_calls([{"name": "NAME", "arguments": {}}], style)
    text = _INTRODUCTION.replace("{example}", example).replace("{tools}", lines)
    if turns and turns[0]["role"] == "system":
        return [{**turns[0], "content": f"{turns[0].get('content') or ''}\n\n{text}".strip()}, *turns[1:]]
    return [{"role": "system", "content": text}, *turns]


def calls_as_content(turns: Turns, style: str) -> Turns:
    """Write earlier calls as the model wrote them, into the content of its messages."""
    found = []
    for turn in turns:
        calls = turn.get("tool_calls")
        if calls:
            functions = [call.get("function", call) for call in calls]
            words = turn.get("content") or ""
            turn = {**turn, "content": words + ("\n" if words else "") + spell_calls(functions, style)}
            del turn["tool_calls"]
        found.append(turn)
    return found


def results_as_user(turns: Turns) -> Turns:
    """Give what tools returned as messages of the user, the results of one round together."""
    found: Turns = []
    for i, turn in enumerate(turns):
        if turn["role"] != "tool":
            found.append(turn)
            continue
        text = f"<tool_response>\n{turn.get('content') or ''}\n</tool_response>"
        if i and turns[i - 1]["role"] == "tool":
            found[-1] = {"role": "user", "content": f"{found[-1]['content']}\n{text}"}
        else:
            found.append({"role": "user", "content": text})
    return found


def spell_calls(calls: Sequence[Mapping[str, Any]], style: str) -> str:
    """Calls, with a name and arguments each, as a model of that format writes them."""
    if style == "lfm2":
        return f"<|tool_call_start|>[{', '.join(map(_python, calls))}]<|tool_call_end|>"
    objects = [f'{{"name": {json.dumps(call["name"])}, "arguments": {_json(call)}}}' for call in calls]
    if style == "granite":
        return f"<|tool_call|>[{', '.join(objects)}]"
    return "\n".join(f"<tool_call>\n{one}\n</tool_call>" for one in objects)


def _json(call: Mapping[str, Any]) -> str:
    arguments = call.get("arguments")
    return arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)


def _python(call: Mapping[str, Any]) -> str:
    arguments = call.get("arguments") or {}
    if not isinstance(arguments, Mapping):
        return f"{call['name']}({arguments})"
    return f"{call['name']}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
