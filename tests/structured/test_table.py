"""A model's vocabulary as grammars see it."""

from __future__ import annotations

from typing import Any

from edgellm.constraints import token_table
from edgellm.structured import Compiler, wanted
from edgellm.tokenizer import load_tokenizer
from tests.structured.toy import legal
from tests.support.tiny import BOS, END, EOS, TURN, UNK, first_piece, vocabulary

USER_DEFINED, UNUSED = 4, 5


def tokenizer(pieces: list[str], types: dict[int, int] | None = None, **changes: Any) -> Any:
    metadata = vocabulary(pieces, **changes)
    for token, kind in (types or {}).items():
        metadata["tokenizer.ggml.token_type"][token] = kind
    return load_tokenizer(metadata, "test")


def test_only_tokens_with_a_text_of_their_own_have_bytes():
    at = first_piece()
    tok = tokenizer(["<unused1>", "<div>", " word"], {at: UNUSED, at + 1: USER_DEFINED})
    table = token_table(tok, tok.n_vocab + 7)
    assert [table.texts[t] for t in (UNK, BOS, EOS, TURN, END, at)] == [b""] * 6
    assert [table.texts[t] for t in (5 + ord("a"), at + 1, at + 2)] == [b"a", b"<div>", b" word"]
    assert table.controls == {BOS: "<s>", EOS: "</s>", TURN: "<|turn|>", END: "<|im_end|>"}
    assert table.ends == tok.eog_ids == {EOS, END}
    constraint = Compiler(table).compile(wanted(regex="(?s:.*)"))
    assert {UNK, BOS, TURN, at, tok.n_vocab, tok.n_vocab + 6}.isdisjoint(legal(constraint))
    assert {EOS, END, at + 1, at + 2, 5 + ord("<")} <= set(legal(constraint))


def test_logits_may_be_fewer_than_tokens():
    tok = tokenizer(["zz"])
    table = token_table(tok, first_piece())
    assert first_piece() not in legal(Compiler(table).compile(wanted(regex="z+")))


def test_controls_can_be_named_by_their_spelling():
    table = token_table(tok := tokenizer([]), tokenizer([]).n_vocab)
    assert tok.n_vocab == len(table.texts)
    assert legal(Compiler(table).compile(wanted(grammar="start: <|turn|> /a/"))) == [TURN]
    assert legal(Compiler(table).compile(wanted(grammar='root ::= <|turn|> "a"'))) == [TURN]


def test_where_a_text_begins_afresh_is_the_tokenizers_business():
    plain, prefixed = tokenizer([]), tokenizer([], add_space_prefix=True)
    assert not token_table(plain, plain.n_vocab).strips_space
    table = token_table(prefixed, prefixed.n_vocab)
    assert table.strips_space
    assert table.starts_afresh(END)
    assert not table.starts_afresh(5 + ord("a"))


def test_the_bytes_of_all_tokens_are_those_of_each():
    tok = tokenizer([" word", "é", "▁▁"])
    assert tok.text_table() == [tok.token_bytes(token) for token in range(tok.n_vocab)]
