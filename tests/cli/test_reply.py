from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgellm.cli.reply import TerminalFilter
from edgellm.cli.ui import columns, count, escape, shorten, size

CASES = [
    ("plain text\n\twith tab", "plain text\n\twith tab"),
    ("grüße 你好 🙂", "grüße 你好 🙂"),
    ("a\x1b[1;31mred\x1b[0m", "ared"),
    ("a\x1b[?25lb", "ab"),
    ("a\x1b[2 qb", "ab"),
    ("\x1b]0;title\x07text", "text"),
    ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
    ("\x1b]52;c;aGk=\x9ctext", "text"),
    ("\x1bPq#0\x1b\\text", "text"),
    ("\x9d0;title\x9ctext", "text"),
    ("\x9b31mred", "red"),
    ("\x1b(Bx\x1bcy\x1b7z", "xyz"),
    ("back\x08\x08space, bell\x07, nul\x00, del\x7f", "backspace, bell, nul, del"),
    ("over\rwritten\r\n", "overwritten\n"),
    ("\x1b]0;open title\nnext line", "\nnext line"),
    ("\x1b[31\ntext", "\ntext"),
    ("\x1b\x1b[31mtext", "text"),
    ("\x1bäb", "äb"),
]


@pytest.mark.parametrize(("text", "shown"), CASES)
def test_control_sequences_are_taken_out_however_they_are_cut(text: str, shown: str) -> None:
    assert TerminalFilter().feed(text) == shown
    for cut in range(len(text) + 1):
        one_by_one = TerminalFilter()
        assert one_by_one.feed(text[:cut]) + one_by_one.feed(text[cut:]) == shown


def test_an_open_sequence_cannot_hide_the_rest() -> None:
    assert TerminalFilter().feed("\x1b]0;" + "x" * 2000).endswith("x" * 1000)


@given(st.text(alphabet=st.sampled_from("\x1b\x9b\x9d\x90[]P;0mA\\\x07\x9c\n\t\r\x00é ")))
def test_nothing_that_a_terminal_obeys_is_ever_shown(text: str) -> None:
    assert all(c in "\n\t" or c.isprintable() for c in TerminalFilter().feed(text))


@given(st.text(alphabet=st.characters(exclude_categories=("Cc", "Cs"))))
def test_text_without_control_characters_is_unchanged(text: str) -> None:
    assert TerminalFilter().feed(text) == text


@pytest.mark.parametrize(
    ("n", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (98_362_432, "98.4 MB"), (999_960, "1.0 MB")]
)
def test_sizes_are_in_powers_of_1000(n: int, text: str) -> None:
    assert size(n) == text


def test_counts_shortening_escaping_and_columns() -> None:
    assert [count(n) for n in (7, 134_515_008, 7_240_000_000)] == ["7", "134.5M", "7.2B"]
    assert [shorten("abcdef", n) for n in (6, 4)] == ["abcdef", "abc…"]
    assert escape("a\n\x1b\u202e\ud800é") == "a\\n\\x1b\\u202e\\ud800é"
    assert columns([("a", "1"), ("bcd", "23")], "<>") == ["  a     1", "  bcd  23"]
    assert columns([], "<>") == []
