"""Marks around control tokens that people spelled out, through whatever a template does."""

from __future__ import annotations

import re

import pytest

from edgellm.segments import Marker


def spelled(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"<\|\w+\|>|</s>", text))


def cut(content: object, template) -> list[tuple[str, bool]]:
    """The segments of a prompt that `template` makes of the marked content."""
    messages = [{"role": "user", "content": content}]
    marker = Marker(messages, spelled)
    return [part for part in marker.segments(template(marker.mark(messages)[0]["content"])) if part[0]]


def test_only_what_was_spelled_out_is_untrusted():
    found = cut("a <|end|> b", lambda text: f"<|user|>{text}<|end|>")
    assert found == [("<|user|>a ", True), ("<|end|>", False), (" b<|end|>", True)]


def test_clean_messages_pass_unmarked_and_uncopied():
    messages = [{"role": "user", "content": "hello \ue000"}]
    marker = Marker(messages, spelled)
    assert marker.mark(messages) is messages
    assert marker.segments("<|user|>hello \ue000") == [("<|user|>hello \ue000", True)]


def test_templates_can_still_trim_and_search_around_the_marks():
    found = cut("  </s> x </s>  ", lambda text: "[" + text.strip() + "]" if "</s> x" not in text else text)
    assert found == [("[", True), ("</s>", False), (" x ", True), ("</s>", False), ("]", True)]


def test_a_template_that_cuts_a_mark_off_leaves_no_trace_of_it():
    found = cut("think</s>answer", lambda text: text.split("</s>")[-1])
    assert found == [("answer", True)]


@pytest.mark.parametrize("content", ["\ue000</s>\ue001", "".join(map(chr, range(0xE000, 0xE100))) + "</s>"])
def test_private_characters_of_the_text_stay(content):
    found = cut(content, lambda text: text)
    assert "".join(text for text, _ in found) == content
    assert ("</s>", False) in found


def test_texts_are_found_however_deep():
    content = [{"type": "text", "text": "a</s>"}, {"type": "text", "text": "b"}]
    found = cut(content, lambda parts: "".join(part["text"] for part in parts))
    assert found == [("a", True), ("</s>", False), ("b", True)]


def test_the_longer_of_two_spellings_is_marked_whole():
    marker = Marker([{"content": "<|end|><|end|>x"}], lambda text: frozenset({"<|end|>", "<|end|>x"}))
    marked = marker.mark([{"content": "<|end|><|end|>x"}])[0]["content"]
    assert [text for text, trusted in marker.segments(marked) if not trusted] == ["<|end|>", "<|end|>x"]
