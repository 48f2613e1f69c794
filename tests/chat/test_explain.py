"""`explain_prompt`: the prompt's own ids, each with its text and who wrote it."""

from __future__ import annotations

from typing import Any

import pytest

import edgellm
from edgellm.chat import ChatOptions
from edgellm.errors import ArgumentError, TemplateError
from edgellm.explain import Explanation, explain
from edgellm.prompts import Prompts
from tests.support.tiny import BOS, CHATML, vocabulary, write_tiny

TALK = [
    {"role": "system", "content": "user"},
    {"role": "user", "content": "héllo </s>"},
]
TOOL = {"type": "function", "function": {"name": "xyz", "parameters": {"type": "object"}}}


def shown(template: str, messages: list[Any], add_bos: bool = True, **options: Any) -> Explanation:
    prompts = Prompts({**vocabulary(["ab"], add_bos_token=add_bos), "tokenizer.chat_template": template}, "m.gguf")
    asked = ChatOptions(**options)
    found = explain(prompts, messages, asked)
    assert found.ids == prompts.encode_chat(messages, asked)
    return found


def said_by(found: Explanation, source: str | None) -> str:
    """The text of all pieces from one source; None: those from nowhere."""
    wanted = () if source is None else (source,)
    return "".join(piece.text for piece in found.pieces if piece.sources == wanted)


def test_every_piece_has_its_source():
    found = shown(CHATML, TALK)
    assert said_by(found, None) == "<s>"
    assert said_by(found, "message 0 (system)") == "user"
    assert said_by(found, "message 1 (user)") == "h\\xc3\\xa9llo </s>"
    assert said_by(found, "template") == ("<|turn|>system\n<|im_end|><|turn|>user\n<|im_end|><|turn|>assistant\n")
    assert [piece.text for piece in found.pieces if piece.special] == [
        "<s>",
        *["<|turn|>", "<|im_end|>"] * 2,
        "<|turn|>",
    ]


def test_it_reads_as_a_table():
    lines = str(shown(CHATML, TALK)).splitlines()
    assert lines[0].split() == ["id", "piece", "from"]
    assert lines[1].split() == [str(BOS), "<s>", "special"]
    assert lines[2].split() == ["3", "<|turn|>", "special,", "template"]
    assert any(line.split() == ["271", r"\n", "template"] or r"\n" in line for line in lines)
    assert len(lines) == len(shown(CHATML, TALK).pieces) + 1


def test_tools_and_documents_are_sources_too():
    found = shown("{{ tools | tojson }}/{{ documents[0].text }}", TALK, tools=[TOOL], documents=[{"text": "jkl"}])
    assert said_by(found, "tools") == "xyz"
    assert said_by(found, "documents") == "jkl"
    assert said_by(found, "template").endswith('"}}}]/')


def test_a_template_that_looks_into_the_text_does_not_mislead():
    source = "{% for m in messages %}{% if m.content.startswith('u') %}(a){% endif %}[{{ m.content }}]{% endfor %}"
    found = shown(source, TALK)
    assert said_by(found, "template") == "(a)[][]"
    assert said_by(found, "message 0 (system)") == "user"


def test_white_space_that_templates_trim_belongs_to_nobody():
    found = shown("<{{ messages[0].content | trim }}>", [{"role": "user", "content": "  a b\n"}], add_bos=False)
    assert said_by(found, "message 0 (user)") == "a b"
    assert said_by(found, "template") == "<>"


def test_a_token_over_a_border_has_two_sources():
    found = shown("a{{ messages[0].content }}", [{"role": "user", "content": "bc"}], add_bos=False)
    assert [(piece.text, piece.sources) for piece in found.pieces] == [
        ("ab", ("template", "message 0 (user)")),
        ("c", ("message 0 (user)",)),
    ]


def test_control_tokens_that_a_message_was_allowed_to_spell_are_its_own():
    found = shown(CHATML, TALK, parse_special=True)
    assert ("</s>", True, ("message 1 (user)",)) in [(p.text, p.special, p.sources) for p in found.pieces]


def test_errors_are_those_of_a_chat():
    with pytest.raises(TemplateError, match="no role"):
        shown(CHATML, [{"content": "x"}])


def test_a_model_explains_what_chat_would_read(tmp_path):
    path = write_tiny(tmp_path / "m.gguf", vocab=vocabulary(), tokenizer__chat_template=CHATML)
    with edgellm.Model(path, backend="reference", n_ctx=128) as model:
        found = model.explain_prompt(TALK, max_tokens=3)
        assert found.ids == model._prompts.encode_chat(TALK)
        generation = model.chat(TALK, max_tokens=1)
        assert generation.usage.prompt_tokens == len(found.ids)
        with pytest.raises(ArgumentError, match="empty"):
            model.explain_prompt([])
        with pytest.raises(TypeError, match="did you mean tools"):
            model.explain_prompt(TALK, tool=[])
    with pytest.raises(edgellm.ClosedError):
        model.explain_prompt(TALK)
