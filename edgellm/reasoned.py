"""Answers that follow a grammar, after reasoning that is free."""

from __future__ import annotations

from edgellm.chat.recognise import ReplyFormat
from edgellm.structured import Grammar
from edgellm.structured.reasoning import after
from edgellm.structured.toolcalls import Token
from edgellm.tokenizer import Tokenizer
from edgellm.toolgrammar import Spelling


def after_reasoning(grammar: Grammar, format: ReplyFormat, tokenizer: Tokenizer, *, opened: bool) -> Grammar | None:
    """The grammar of a reply whose answer follows `grammar`, once the reasoning is over.

    opened: the prompt has begun the reasoning; otherwise the model may begin it, or answer at once.
    None where that cannot be said: the reasoning begins or ends with more than one token or text.
    """
    spelled = Spelling(format, tokenizer)
    match spelled.parts(format.thinking.open), spelled.parts(format.thinking.close):
        case [str() | Token() as begin], [str() | Token() as end]:
            return after(end, grammar, opening=None if opened else begin, controls=spelled.ids)
        case _:
            return None
