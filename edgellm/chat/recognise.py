"""Which format a model's replies have: its chat template shows it."""

from __future__ import annotations

from dataclasses import dataclass

from edgellm.chat import harmony
from edgellm.chat.formats import CALLS, Calls
from edgellm.errors import ArgumentError


@dataclass(frozen=True, slots=True)
class Thinking:
    """How reasoning is written."""

    open: str
    close: str
    drop: tuple[str, ...] = ()
    """Marks around the answer."""


_SIGNS: tuple[tuple[str, str], ...] = (
    ("<|channel|>", "harmony"),
    ("<atem:", "muse"),
    ("<｜DSML｜", "deepseek-dsml"),
    ("｜DSML｜", "deepseek-dsml"),
    ("<｜tool▁call", "deepseek"),
    ("<|tool_call_begin|>", "kimi-k2"),
    ("<|open|>", "kimi-k3"),
    ("<tool_calls{}>", "hy3"),
    ("<arg_key", "glm"),
    ("minimax:tool_call", "minimax-m2"),
    ("<function name=", "minicpm"),
    ("<parameter=", "qwen-coder"),
    (">>>", "functionary-v3.2"),
    ("<function=", "functionary"),
    ("[TOOL_CALLS]", "mistral"),
    ("<|tool_call_start|>", "lfm2"),
    ("<|tool_list_start|>", "lfm2"),
    ("keep_past_thinking", "lfm2"),
    ("<TOOLCALL>", "nemotron"),
    ("<|START_ACTION|>", "command-r"),
    ("Action:", "command-r-plus"),
    ("<|tools_prefix|>", "apertus"),
    ("<|role_sep|>", "gigachat"),
    ("functools", "functools"),
    ("<|tool_call:begin|>", "solar"),
    ("<|tool_call>", "gemma"),
    ("<start_function_call>", "gemma"),
    ("<tool_calls>", "tool-calls"),
    ("<|tool_call|>", "granite"),
    ("<tool_call>", "hermes"),
    ("<|python_tag|>", "llama"),
    ('"parameters": dictionary', "llama"),
    ("<|start_header_id|>", "llama"),
)
"""What a template says → the format of its calls; the first that fits, as some templates mention several."""

_THINKING: tuple[tuple[str, Thinking], ...] = (
    ("<seed:think>", Thinking("<seed:think>", "</seed:think>")),
    ("<think{}>", Thinking("<think:opensource>", "</think:opensource>")),
    ("<mm:think>", Thinking("<mm:think>", "</mm:think>")),
    ("[THINK]", Thinking("[THINK]", "[/THINK]")),
    (
        "<|START_THINKING|>",
        Thinking(
            "<|START_THINKING|>",
            "<|END_THINKING|>",
            ("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
        ),
    ),
    ("<|channel>thought", Thinking("<|channel>thought", "<channel|>")),
    (
        "<|open|>",
        Thinking(
            "<|open|>think<|sep|>",
            "<|close|>think<|sep|>",
            ("<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"),
        ),
    ),
    (
        "<|think|>",
        Thinking("<|think|>", "<|end|>", ("<|begin|>assistant<|content|>", "<|content|>")),
    ),
    (
        "Here are my reasoning steps:",
        Thinking("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]", ("[END FINAL RESPONSE]",)),
    ),
    ("</response>", Thinking("<think>", "</think>", ("<response>", "</response>"))),
)
_USUAL = Thinking("<think>", "</think>")


RAW = "raw"
"""The format of replies that are not taken apart."""


@dataclass(frozen=True, slots=True)
class ReplyFormat:
    """How one model writes its replies."""

    name: str
    calls: Calls
    thinking: Thinking
    anywhere: bool
    """Whether reasoning may begin in mid-reply; otherwise only a reply that begins with it has some."""

    @property
    def tokens(self) -> frozenset[str]:
        """Texts that may be control tokens and still must be read: with them the parts of a reply begin and end."""
        if self.name == "harmony":
            return frozenset(harmony.TOKENS)
        own = (*self.calls.marks, *self.calls.wraps, *self.calls.drop, *self.thinking.drop)
        return frozenset({self.thinking.open, self.thinking.close, *own, *_INNER})


_INNER = (
    *("</tool_call>", "<tool_call|>", "<end_function_call>", "<|tool_call_end|>", "<｜tool▁call▁end｜>"),
    *("<|END_ACTION|>", "<|tools_suffix|>", "</TOOLCALL>", "</tool_calls>", "<|tool_call:end|>"),
    *("[CALL_ID]", "[ARGS]", "<｜tool▁sep｜>", "<|tool_call_argument_begin|>", "<|tool_call:name|>"),
    *("<|tool_call:args|>", '<|"|>', "<escape>", "<|channel>", "<|open|>", "<|close|>", "<|sep|>", "<|begin|>"),
    *("｜DSML｜", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<tool_call>", "<|role_sep|>"),
)
"""Marks within calls, of all formats: what is no token of a model does no harm."""


def recognise(source: str, name: str | None = None) -> ReplyFormat:
    """The format of the replies that follow a template.

    name: the format of calls, where it is known better.  Raises ArgumentError for an unknown one.
    """
    if name is None:
        name = next((found for sign, found in _SIGNS if sign in source), "hermes")
    elif name not in (RAW, *CALLS):
        raise ArgumentError(f"reply_format must be one of {', '.join((RAW, *CALLS))}, not {name!r}")
    thinking = next((found for sign, found in _THINKING if sign in source), None)
    known = thinking is not None or "think>" in source
    return ReplyFormat(name, CALLS.get(name, CALLS["none"]), thinking or _USUAL, anywhere=known)
