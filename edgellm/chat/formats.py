"""The formats in which models write calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from edgellm.chat.events import Sink
from edgellm.chat.json_calls import read_named, read_objects
from edgellm.chat.other_calls import read_gemma, read_python
from edgellm.chat.reader import Parse, Reader
from edgellm.chat.tag_calls import Schemas, Tags, read_tagged

ReadCalls = Callable[[Reader, Sink, Schemas], Parse[bool]]


@dataclass(frozen=True, slots=True)
class Calls:
    """How calls are written."""

    marks: Mapping[str, ReadCalls]
    """What opens one or more calls → what reads them."""
    wraps: tuple[str, ...] = ()
    """Marks around groups of calls, without a meaning of their own."""
    drop: tuple[str, ...] = ()
    """Marks of the answer itself."""
    at_start: Mapping[str, ReadCalls] | None = None
    """First character of an answer → what reads calls that have no mark."""


def _json(close: str = "", *, named_by_key: bool = False) -> ReadCalls:
    def read(reader: Reader, sink: Sink, schemas: Schemas) -> Parse[bool]:
        found = yield from read_objects(reader, sink, named_by_key=named_by_key)
        if found and close:
            yield from reader.space()
            yield from reader.accept(close)
        return found

    return read


def _named(head: str, *tail: str) -> ReadCalls:
    pattern = re.compile(head, re.DOTALL)
    return lambda reader, sink, schemas: read_named(reader, sink, pattern, tail)


def _tagged(tags: Tags) -> ReadCalls:
    return lambda reader, sink, schemas: read_tagged(reader, sink, tags, schemas)


def _python(end: str | None = None, opened: str = "[") -> ReadCalls:
    return lambda reader, sink, schemas: read_python(reader, sink, end, opened=opened)


def _gemma(end: str, quote: str) -> ReadCalls:
    return lambda reader, sink, schemas: read_gemma(reader, sink, end, quote)


def _first_of(*readers: ReadCalls) -> ReadCalls:
    """The first reader that finds a call."""

    def read(reader: Reader, sink: Sink, schemas: Schemas) -> Parse[bool]:
        for one in readers:
            if (yield from one(reader, sink, schemas)):
                return True
        return False

    return read


_N = r"(?P<name>[\w.:/-]+?)"

_FUNCTION = Tags((">",), "<parameter=", (">",), "</parameter>", "</function>")
_INVOKE = Tags(('">',), '<parameter name="', (">",), "</parameter>", "</invoke>")
_DSML = Tags(('">',), '<｜DSML｜parameter name="', (">",), "</｜DSML｜parameter>", "</｜DSML｜invoke>")
_ATEM = Tags(('">',), '<atem:parameter name="', (">",), "</atem:parameter>", "</atem:invoke>")
_ARG_KEYS = Tags((), "<arg_key>", ("</arg_key>", "<arg_value>"), "</arg_value>", "</tool_call>")
_PARAM = Tags(('">',), '<param name="', (">",), "</param>", "</function>")
_KIMI_K3 = Tags(("<|sep|>",), "<|open|>argument key=", ("<|sep|>",), "<|close|>argument<|sep|>", "<|close|>call<|sep|>")
_HY3 = Tags(
    ("<tool_sep:opensource>",),
    "<arg_key:opensource>",
    ("</arg_key:opensource>", "<arg_value:opensource>"),
    "</arg_value:opensource>",
    "</tool_call:opensource>",
)

_HERMES = _json("</tool_call>")
_LLAMA_START: Mapping[str, ReadCalls] = {"{": _json(), "[": _first_of(_python(), _json())}

CALLS: dict[str, Calls] = {
    "hermes": Calls({"<tool_call>": _HERMES}),
    "qwen-coder": Calls(
        {"<function=": _tagged(_FUNCTION)}, ("<tool_call>", "</tool_call>", "<seed:tool_call>", "</seed:tool_call>")
    ),
    "glm": Calls({"<tool_call>": _tagged(_ARG_KEYS)}),
    "hy3": Calls({"<tool_call:opensource>": _tagged(_HY3)}, ("<tool_calls:opensource>", "</tool_calls:opensource>")),
    "minimax-m2": Calls({'<invoke name="': _tagged(_INVOKE)}, ("<minimax:tool_call>", "</minimax:tool_call>")),
    "minicpm": Calls({'<function name="': _tagged(_PARAM)}),
    "muse": Calls({'<atem:invoke name="': _tagged(_ATEM)}, ("<atem:function_calls>", "</atem:function_calls>")),
    "kimi-k3": Calls({"<|open|>call tool=": _tagged(_KIMI_K3)}, ("<|open|>tools<|sep|>", "<|close|>tools<|sep|>")),
    "kimi-k2": Calls(
        {
            "<|tool_call_begin|>": _named(
                rf"\s*(?:functions\.)?{_N}(?::\d+)?\s*<\|tool_call_argument_begin\|>\s*", "<|tool_call_end|>"
            )
        },
        ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    ),
    "deepseek": Calls(
        {
            "<｜tool▁call▁begin｜>": _named(
                rf"\s*(?:function<｜tool▁sep｜>)?{_N}\s*(?:<｜tool▁sep｜>\s*)?(?:```(?:json)?\s*)?",
                "```",
                "<｜tool▁call▁end｜>",
            )
        },
        ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    ),
    "deepseek-dsml": Calls(
        {'<｜DSML｜invoke name="': _tagged(_DSML)},
        (
            "<｜DSML｜function_calls>",
            "</｜DSML｜function_calls>",
            "<｜DSML｜tool_calls>",
            "</｜DSML｜tool_calls>",
        ),
    ),
    "mistral": Calls(
        {"[TOOL_CALLS]": _first_of(_json(), _named(rf"\s*{_N}(?:\[CALL_ID\](?P<id>\w+))?(?:\[ARGS\])?\s*"))}
    ),
    "llama": Calls({"<|python_tag|>": _first_of(_json(), _python(opened=""))}, at_start=_LLAMA_START),
    "functionary": Calls({"<function=": _named(rf"{_N}>\s*", "</function>")}),
    "functionary-v3.2": Calls({">>>": _named(rf"{_N}\n\s*")}, drop=(">>>all\n",)),
    "granite": Calls({"<|tool_call|>": _json(), "<tool_call>": _HERMES}),
    "lfm2": Calls({"<|tool_call_start|>": _first_of(_json("<|tool_call_end|>"), _python("<|tool_call_end|>"))}),
    "nemotron": Calls({"<TOOLCALL>": _json("</TOOLCALL>")}),
    "tool-calls": Calls({"<tool_calls>": _json("</tool_calls>")}),
    "command-r": Calls({"<|START_ACTION|>": _json("<|END_ACTION|>")}),
    "command-r-plus": Calls({"Action:\n```json": _json("```"), "Action: ```json": _json("```")}),
    "apertus": Calls({"<|tools_prefix|>": _json("<|tools_suffix|>", named_by_key=True)}),
    "gigachat": Calls({"<|function_call|>": _json(), "function call<|role_sep|>": _json()}),
    "functools": Calls({"functools": _json()}),
    "solar": Calls(
        {
            "<|tool_call:begin|>": _named(
                rf"(?P<id>\w*)<\|tool_call:name\|>{_N}<\|tool_call:args\|>\s*", "<|tool_call:end|>"
            )
        },
        ("<|begin|>assistant<|tool_calls|>", "<|tool_calls|>"),
        ("<|begin|>assistant<|content|>", "<|content|>"),
    ),
    "gemma": Calls(
        {
            "<start_function_call>": _gemma("<end_function_call>", "<escape>"),
            "<|tool_call>": _gemma("<tool_call|>", '<|"|>'),
        }
    ),
    "harmony": Calls({}),
    "none": Calls({}),
}
