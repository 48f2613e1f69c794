"""Regular expressions and choices."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgellm.errors import GrammarError
from edgellm.structured.gbnf import translate
from edgellm.structured.grammar import choice_grammar, regex_grammar
from edgellm.structured.lark import text_grammar
from tests.structured.toy import COMPILER, accepts, draw

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"\d{3}-\w+", ["123-é_9"], ["12-a", "123-", "٣٣٣-a"]),
        ("^abc$", ["abc"], ["abcd", "ab"]),
        ("^(a|b/)$", ["a", "b/"], ["b"]),
        ("^a|b$", ["a", "b"], ["ab"]),
        (r"a\$", ["a$"], ["a"]),
        (r"a\\$", ["a\\"], ["a$"]),
        ("a.b", ["aéb", "a b"], ["a\nb", "ab"]),
        ("(?s:a.b)", ["a\nb"], ["ab"]),
        ("(?i)Hi", ["hI", "HI"], ["h"]),
        ('"/"\n#x', ['"/"\n#x'], ['"/"']),
        ("a*", ["", "aaa"], ["b"]),
        ("[^a]", ["b", "\n", "é"], ["a", ""]),
        (r"\p{Greek}+", ["αβ"], ["a"]),
    ],
)
def test_a_text_is_a_match_of_the_whole_expression(pattern, good, bad):
    grammar = regex_grammar(pattern)
    assert [text for text in good if not accepts(grammar, text)] == []
    assert [text for text in bad if accepts(grammar, text)] == []


@pytest.mark.parametrize("pattern", ["(", "a^b", "a$b", r"\bfoo", "(?=a)b", r"(a)\1", "[z-a]", "a{3,2}", r"\q"])
def test_a_fault_is_named_without_our_own_lines(pattern):
    with pytest.raises(GrammarError, match=r"^regex: ") as caught:
        COMPILER.compile(regex_grammar(pattern))
    assert "start:" not in str(caught.value)


@settings(deadline=None)
@given(
    pattern=st.from_regex(r"\A([a-c]|\[a-b\]|\(a\|b*\)|\.)([*?+]|\{1,2\})?([ab]|\[\^a\])?\Z"), seed=st.integers(0, 99)
)
def test_drawn_texts_match_as_python_has_it(pattern, seed):
    text, complete = draw(regex_grammar(pattern), seed, 12)
    if complete:
        assert re.fullmatch(pattern, text.decode())


@settings(deadline=None)
@given(texts=st.lists(TEXTS, min_size=1, max_size=5), other=TEXTS)
def test_choices_are_what_they_are_to_the_last_character(texts, other):
    grammar = choice_grammar(texts)
    assert all(accepts(grammar, text) for text in texts)
    assert accepts(grammar, other) == (other in texts)


@settings(deadline=None)
@given(text=TEXTS)
def test_texts_in_gbnf_are_what_they_are(text):
    quoted = "".join(f"\\U{ord(char):08x}" for char in text)
    plain = "".join(f"\\{char}" if char in '"\\' else char for char in text if char not in "\n\r")
    assert accepts(text_grammar(f'root ::= "{quoted}"'), text)
    assert accepts(text_grammar(f'root ::= "{plain}"'), re.sub("[\n\r]", "", text))
    sets = " ".join(f"[\\U{ord(char):08x}]" for char in text)
    assert accepts(text_grammar(f"root ::= {sets}"), text)


@settings(deadline=None)
@given(text=st.text('ab"[]()|*+?{},.:=#<>\\\n 1', max_size=40))
def test_any_text_is_gbnf_or_a_grammar_error(text):
    try:
        lark = translate(text)
    except GrammarError:
        return
    assert lark.startswith("start: ")


@settings(deadline=None)
@given(text=st.text('ab"/[]()|*+?{},.:=#%<>\\\n 1', max_size=30), kind=st.sampled_from(["start: ", "root ::= "]))
def test_any_grammar_compiles_or_is_a_grammar_error(text, kind):
    with suppress(GrammarError):
        COMPILER.compile(text_grammar(kind + text)).mask()
