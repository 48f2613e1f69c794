"""Answers that follow a grammar, after reasoning that is free."""

from __future__ import annotations

import re
from dataclasses import replace

from edgellm.chat.recognise import ReplyFormat
from edgellm.structured import Grammar
from edgellm.structured.toolcalls import Token, call_grammar
from edgellm.tokenizer import Tokenizer
from edgellm.toolgrammar import Spelling

_PLACE = "@answer@"
_RULE = re.compile(r"^start\b", re.MULTILINE)


def after_reasoning(grammar: Grammar, format: ReplyFormat, tokenizer: Tokenizer, *, opened: bool) -> Grammar | None:
    """The grammar of a reply whose answer follows `grammar`, once the reasoning is over.

    opened: the prompt has begun the reasoning; otherwise the model may begin it, or answer at once.
    None where that cannot be said: the reasoning ends with more than one token or text, or the grammar refers to its
    own beginning.
    """
    spelled = Spelling(format, tokenizer)
    open_, close = spelled.parts(format.thinking.open), spelled.parts(format.thinking.close)
    if len(open_) != 1 or len(close) != 1 or len(re.findall(r"\bstart\b", grammar.lark)) != 1:
        return None
    (end,) = close
    if not isinstance(end, (str, Token)):
        return None
    around = call_grammar(end, [[_PLACE]], least=1, most=1, after=False, controls=spelled.ids).lark
    around = around.replace(f'"{_PLACE}"', "SPACE? answer")
    begin = open_[0]
    first = f"<[{begin.id}]>" if isinstance(begin, Token) else f'"{begin}"'
    start = "reasoned" if opened else f"SPACE? {first} reasoned | answer"
    _, _, rules = grammar.lark.partition("\n")
    lines = [_RULE.sub("reasoned", around), _RULE.sub("answer", rules), f"start: {start}"]
    return replace(grammar, lark="\n".join(lines), locate=None)
