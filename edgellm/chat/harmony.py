"""gpt-oss's harmony format: messages on channels, of which some are addressed to functions."""

from __future__ import annotations

import re

from edgellm.chat.events import Sink
from edgellm.chat.reader import Parse, Reader

START, CHANNEL, MESSAGE, CONSTRAIN = "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>", START)
ANSWER = f"{CHANNEL}final{MESSAGE}"
"""Begins an answer."""
TOKENS = (START, CHANNEL, MESSAGE, CONSTRAIN, *ENDS[:3])

_TO = re.compile(r"\bto=(?:functions\.)?([\w.:-]+)")
_ON = re.compile(r"<\|channel\|>\s*(\w+)")


def read_harmony(reader: Reader, sink: Sink, calls: bool) -> Parse[None]:
    """Read a reply that follows ``<|start|>assistant``."""
    while True:
        header: list[str] = []
        mark = yield from reader.until((MESSAGE,), header.append)
        words = "".join(header)
        if mark is None:
            # A reply without any header is an answer all the same.
            if CHANNEL not in words and START not in words:
                sink.write_content(words)
            return
        to, on = _TO.search(words), _ON.search(words)
        if to and calls:
            sink.begin_call(to[1])
            end = yield from reader.until(ENDS, sink.write_arguments)
            # <|call|> ends the generation, and is then not part of the text.
            sink.end_call(complete=end is not None or _is_whole(sink))
        elif on and on[1] == "analysis":
            end = yield from reader.until(ENDS, sink.write_reasoning)
            sink.end_reasoning()
        else:
            sink.end_reasoning()
            end = yield from reader.until(ENDS, sink.write_content)
        if end is None:
            return


def _is_whole(sink: Sink) -> bool:
    import json

    try:
        json.loads(sink.arguments or "{}")
    except (ValueError, RecursionError):
        return False
    return True
