"""Stop strings: nothing of a stop goes out, nothing else is lost."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgellm.errors import ArgumentError
from edgellm.tokenizer import StopMatcher


def run(stops, chunks):
    """What goes out for each chunk and at the end, and the stop that matched."""
    matcher = StopMatcher(stops)
    out = []
    for chunk in chunks:
        text, stopped = matcher.feed(chunk)
        out.append(text)
        if stopped:
            return out, matcher.matched
    return [*out, matcher.flush()], matcher.matched


@pytest.mark.parametrize(
    ("stops", "chunks", "expected", "matched"),
    [
        (["DEFGHIJ"], ["DEF", "G", "HI", "J"], ["", "", "", ""], "DEFGHIJ"),
        (["\nUser:"], ["ok\nUser", ":"], ["ok", ""], "\nUser:"),
        (["own fox"], [" br", "own", " fox"], [" br", "", ""], "own fox"),
        (["\n"], ["?", "\n"], ["?", ""], "\n"),
        (["assistant"], ["ple", "as"], ["ple", "", "as"], None),
        (["DEFGHIJ"], ["DEF"], ["", "DEF"], None),
        (["aab"], ["a", "a", "a", "b"], ["", "", "a", ""], "aab"),
        (["ab", "abc"], ["xabc"], ["x"], "ab"),
        (["abc", "ab"], ["xa", "bc"], ["x", ""], "ab"),
        (["two", "one"], ["a one two"], ["a "], "one"),
        (["one"], ["one one"], [""], "one"),
        (["bcd", "abcde"], ["abcd", "e"], ["", ""], "abcde"),
        (["bcd", "abcde"], ["abcd", "x"], ["", "a"], "bcd"),
        (["bcd", "abcde"], ["abcd"], ["", "a"], "bcd"),
        (["😀!"], ["hi 😀", "?", "😀", "!"], ["hi ", "😀?", "", ""], "😀!"),
        ([], ["any", "thing"], ["any", "thing", ""], None),
    ],
)
def test_examples(stops, chunks, expected, matched):
    assert run(stops, chunks) == (expected, matched)


def test_nothing_comes_out_after_a_stop():
    matcher = StopMatcher(["."])
    assert matcher.feed("a.b") == ("a", True)
    assert matcher.feed("c") == ("", True)
    assert matcher.flush() == ""
    assert matcher.matched == "."


def test_only_what_may_become_a_stop_is_held():
    matcher = StopMatcher(["abc"])
    assert matcher.feed("xxab") == ("xx", False)
    assert matcher.feed("ab") == ("ab", False)
    assert matcher.feed("x") == ("abx", False)


@pytest.mark.parametrize("stops", [[""], ["a", ""], [1], [None], "ab", [b"a"]])
def test_senseless_stops_are_refused(stops):
    with pytest.raises(ArgumentError):
        StopMatcher(stops)


def test_long_stops_and_many_chunks_stay_fast():
    matcher = StopMatcher(["a" * 2000 + "b", "a" * 1999 + "c"])
    start = time.process_time()
    sent = sum(len(matcher.feed("a")[0]) for _ in range(20_000))
    assert time.process_time() - start < 5
    assert sent == 18_000
    assert len(matcher.flush()) == 2000


@settings(deadline=None)
@given(
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=4),
    st.lists(st.text("abc", max_size=4), max_size=8),
)
def test_equals_a_search_in_the_whole_text(stops, chunks):
    whole = "".join(chunks)
    out, matched = run(stops, chunks)
    hits = [(whole.find(stop), len(stop), stop) for stop in stops if stop in whole]
    first = min(hits, default=(len(whole), 0, None))
    assert "".join(out) == whole[: first[0]]
    assert matched == first[2]
