"""Which tokens a mask allows: every spelling of a legal text, and nothing that is no text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgellm.errors import GrammarError
from edgellm.structured import Compiler, Grammar, wanted
from tests.structured.toy import (
    COMPILER,
    EMPTY,
    END,
    EXTRA,
    FIRST_EXTRA,
    N_VOCAB,
    OTHER_END,
    TABLE,
    TOOL,
    legal,
    table,
)


def grammar(**argument: object) -> Grammar:
    found = wanted(**argument)  # type: ignore[arg-type]
    assert found is not None
    return found


def token(text: bytes) -> int:
    return FIRST_EXTRA + EXTRA.index(text)


def test_every_spelling_of_a_forced_text_is_legal():
    constraint = COMPILER.compile(grammar(choices=["abc"]))
    assert legal(constraint) == [ord("a"), token(b"ab")]
    constraint.advance(token(b"ab"))
    assert legal(constraint) == [ord("c")]
    constraint.advance(ord("c"))
    assert constraint.finished
    assert legal(constraint) == [END, OTHER_END]


def test_the_end_is_legal_only_where_the_text_may_end():
    constraint = COMPILER.compile(grammar(regex="a{2,3}"))
    seen = []
    while not constraint.finished:
        seen.append(END in legal(constraint))
        constraint.advance(ord("a"))
    assert seen == [False, False, True]


def test_after_the_end_nothing_but_the_end_is_legal():
    constraint = COMPILER.compile(grammar(regex="a+"))
    constraint.advance(ord("a"))
    assert not constraint.finished
    constraint.advance(OTHER_END)
    assert constraint.finished
    assert legal(constraint) == [END, OTHER_END]


@pytest.mark.parametrize("asked", [{"regex": "(?s:.*)"}, {"json": True}, {"grammar": "start: /(?s:.)*/"}])
def test_control_tokens_empty_tokens_and_padding_are_never_legal(asked):
    constraint = COMPILER.compile(grammar(**asked))
    for letter in b'{"':
        assert not {TOOL, EMPTY, *range(FIRST_EXTRA + len(EXTRA), N_VOCAB)} & set(legal(constraint))
        assert max(legal(constraint)) < N_VOCAB
        constraint.advance(letter)


@pytest.mark.parametrize("text", ["start: <tool> A\nA: /a+/", 'root ::= <tool> "a"+', 'root ::= <[258]> "a"+'])
def test_a_grammar_may_name_a_control_token(text):
    constraint = COMPILER.compile(grammar(grammar=text))
    assert legal(constraint) == [TOOL]
    constraint.advance(TOOL)
    assert ord("a") in legal(constraint)
    assert TOOL not in legal(constraint)


def test_an_end_token_with_a_text_is_still_no_text():
    texts = [*TABLE.texts]
    texts[END] = b"a"
    constraint = Compiler(table(texts=texts, controls={})).compile(grammar(regex="ba"))
    constraint.advance(ord("b"))
    assert legal(constraint) == [ord("a")]


def test_a_model_without_an_end_token_stops_where_nothing_can_follow():
    constraint = Compiler(table(ends=frozenset())).compile(grammar(regex="ab?"))
    constraint.advance(ord("a"))
    assert [t for t in legal(constraint) if t < N_VOCAB] == [ord("b")]
    constraint.advance(ord("b"))
    assert constraint.finished


def test_a_text_that_the_vocabulary_cannot_spell_is_refused_before_the_first_token():
    texts = [text if text != b"q" else b"" for text in TABLE.texts]
    with pytest.raises(GrammarError, match="no text of this model's tokens"):
        Compiler(table(texts=texts)).compile(grammar(regex="q"))


def test_a_dead_end_later_on_is_an_error_of_the_mask():
    texts = [text if text != b"q" else b"" for text in TABLE.texts]
    constraint = Compiler(table(texts=texts)).compile(grammar(regex="aq"))
    constraint.advance(ord("a"))
    with pytest.raises(GrammarError, match="cannot go on"):
        constraint.mask()


def test_a_token_that_is_not_legal_is_an_error():
    constraint = COMPILER.compile(grammar(regex="a"))
    with pytest.raises(GrammarError, match="cannot go on with token 98"):
        constraint.advance(98)


PATTERN = r"[ab ]{0,3}(12|true) ?"


@settings(deadline=None)
@given(prefix=st.text("ab 12true", max_size=8))
def test_a_mask_is_what_a_regular_expression_says(prefix):
    """Against Python's own engine: a token is legal if some text of the pattern begins with all that came and it."""
    heads = {text[:n] for text in TEXTS for n in range(len(text) + 1)}
    constraint = COMPILER.compile(grammar(regex=PATTERN))
    for i, letter in enumerate(prefix):
        if prefix[: i + 1] not in heads:
            assert ord(letter) not in legal(constraint)
            return
        constraint.advance(ord(letter))
    expected = {t for t, text in enumerate(TABLE.texts) if text.isascii() and text and prefix + text.decode() in heads}
    assert set(legal(constraint)) - TABLE.ends == expected
    assert (END in legal(constraint)) == bool(re.fullmatch(PATTERN, prefix))


STARTS = ["", *"ab ", *(a + b for a in "ab " for b in "ab "), *(a + b + c for a in "ab " for b in "ab " for c in "ab ")]
TEXTS = [start + word + end for start in STARTS for word in ("12", "true") for end in ("", " ")]


def test_where_a_text_begins_afresh_a_leading_space_does_not_count():
    compiler = Compiler(table(strips_space=True, starts_afresh=lambda token: token == TOOL))
    constraint = compiler.compile(grammar(regex="a{1,2}"), afresh=True)
    # " a" without its space is "a"; " " is nothing and may come first; "  " would leave a space.
    assert legal(constraint) == [ord(" "), ord("a"), token(b" a"), token(b" ")]
    constraint.advance(token(b" "))
    assert legal(constraint) == [ord("a")]
    constraint = compiler.compile(grammar(regex="a{1,2}"), afresh=True)
    constraint.advance(token(b" a"))
    assert set(legal(constraint)) == {ord("a"), END, OTHER_END}


def test_a_token_after_which_a_text_begins_afresh_keeps_its_space():
    compiler = Compiler(table(strips_space=True, starts_afresh=lambda t: t == token(b" a")))
    assert legal(compiler.compile(grammar(regex="a{1,2}"), afresh=True)) == [ord(" "), ord("a"), token(b" ")]
    constraint = compiler.compile(grammar(regex=" aa"), afresh=True)
    assert token(b" a") in legal(constraint)
    constraint.advance(token(b" a"))
    assert legal(constraint) == [ord(" "), ord("a"), token(b" ")]


def test_a_text_may_need_a_space_where_the_first_one_does_not_count():
    compiler = Compiler(table(strips_space=True))
    constraint = compiler.compile(grammar(regex=" a"), afresh=True)
    assert legal(constraint) == [ord(" "), token(b" "), token(b"  ")]
    constraint.advance(token(b"  "))
    assert legal(constraint) == [ord("a")]


def test_a_text_begins_afresh_after_some_tokens():
    compiler = Compiler(table(strips_space=True, starts_afresh=lambda token: token == TOOL))
    constraint = compiler.compile(grammar(grammar='start: "b" <tool> "a"'))
    for step in (ord("b"), TOOL, token(b" a")):
        assert step in legal(constraint)
        constraint.advance(step)
    assert constraint.finished


def test_constraints_of_one_grammar_do_not_share_their_place():
    one, other = (COMPILER.compile(grammar(regex="ab")) for _ in range(2))
    one.advance(ord("a"))
    assert legal(one) == [ord("b")]
    assert legal(other) == [ord("a"), token(b"ab")]
