"""The text of whole generations: streams, stops and ends, on models that say what they are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import edgellm
from tests.support.fake import FakeBackend, script
from tests.support.tiny import BOS, CHATML, END, EOS, TURN, UNK, first_piece, vocabulary, write_tiny

CHAT = [{"role": "user", "content": "hello"}]
PIECES = [" b", "ro", "own", " own", "fox", "\n\n", "<|", "turn|>"]


class Scripted:
    """A model that says `ids` after any prompt, whatever it was."""

    def __init__(self, path: Path) -> None:
        backend = FakeBackend(script([EOS], 0))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("edgellm.loading.get_backend", lambda name: backend)
            self.model = edgellm.Model(path)
        self._executable = backend.executable

    def say(self, ids: list[int], prompt: list[int]) -> None:
        self._executable.rule = script(ids, len(prompt))


@pytest.fixture(scope="module")
def open_scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[bool], Scripted]]:
    """A function that gives a model whose vocabulary puts a space before a text, or does not."""
    found: dict[bool, Scripted] = {}

    def get(prefix: bool) -> Scripted:
        if prefix not in found:
            words = vocabulary(PIECES, add_space_prefix=prefix) | {"tokenizer.chat_template": CHATML}
            found[prefix] = Scripted(write_tiny(tmp_path_factory.mktemp("scripted") / "m.gguf", vocab=words))
        return found[prefix]

    yield get
    for scripted in found.values():
        scripted.model.close()


@pytest.fixture(scope="module")
def scripted(open_scripted: Callable[[bool], Scripted]) -> Scripted:
    return open_scripted(False)


def expected(model: edgellm.Model, prompt: list[int], ids: list[int], stops: list[str], limit: int) -> str:
    """A text by its definition: all that is said before an end, cut where the first stop string begins."""
    ends = {EOS, END} | ({TURN} if "<|turn|>" in stops else set())
    said = (ids * limit)[:limit]
    said = said[: next((i for i, token in enumerate(said) if token in ends), limit)]
    whole = model.tokenizer.decode([*prompt, *said]).removeprefix(model.tokenizer.decode(prompt))
    return whole[: min((whole.find(stop) for stop in stops if stop in whole), default=len(whole))]


TOKENS = st.one_of(
    st.integers(first_piece(), first_piece() + len(PIECES) - 1),
    st.sampled_from([5 + byte for byte in b"\xf0\x9f\x98\x80\xc4\x8f\x80 ab\nA"]),
    st.integers(5, first_piece() - 1),
    st.sampled_from([UNK, BOS, TURN, TURN, EOS, END]),
)
STOPS = st.one_of(
    st.sampled_from(["<|turn|>", "</s>", "own fox", "r", "\n", "😀", "ď", "\ufffd", " ", "aab", "wn b"]),
    st.text("abrown \n<|😀", min_size=1, max_size=4),
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    prefix=st.booleans(),
    prompt=st.sampled_from([[BOS], [BOS, first_piece()], [TURN, first_piece() + 4, END]]),
    ids=st.lists(TOKENS, min_size=1, max_size=12),
    stops=st.lists(STOPS, max_size=4),
    limit=st.integers(1, 16),
)
@example(prefix=False, prompt=[BOS], ids=[5 + byte for byte in "a😀b".encode()], stops=["😀"], limit=9)
@example(prefix=False, prompt=[BOS], ids=[5 + 0xF0, 5 + 0x9F, EOS], stops=["\ufffd"], limit=9)
@example(prefix=True, prompt=[BOS], ids=[first_piece(), EOS], stops=[" b"], limit=9)
def test_the_stream_and_the_text_are_what_was_said_up_to_the_first_stop(
    open_scripted, prefix, prompt, ids, stops, limit
):
    scripted = open_scripted(prefix)
    scripted.say(ids, prompt)
    wanted = expected(scripted.model, prompt, ids, stops, limit)
    streamed = list(scripted.model.generate(prompt, stop=stops, max_tokens=limit))
    assert "".join(streamed) == wanted
    assert "" not in streamed
    generation = scripted.model.generate(prompt, stop=stops, max_tokens=limit)
    assert generation.text == wanted
    assert generation.finish_reason in ("stop", "length")
    assert generation.finish_reason == "stop" or len(generation.token_ids) == limit


@pytest.mark.parametrize(
    "arguments", [{}, {"stop": None}, {"stop": []}, {"stop": "zz"}, {"stop": ["a", "b", "c", "d", "e"]}]
)
@pytest.mark.parametrize("end", [EOS, END])
def test_the_models_own_ends_hold_whatever_stop_is(scripted, arguments, end):
    prompt = [BOS, first_piece()]
    scripted.say([first_piece() + 4, first_piece() + 2, end], prompt)
    generation = scripted.model.generate(prompt, **arguments)
    assert (generation.text, generation.finish_reason) == ("foxown", "stop")


def test_a_chat_stops_at_the_spelling_of_a_control_token(scripted):
    prompt = scripted.model.tokenize("<|turn|>user\nhello<|im_end|><|turn|>assistant\n", parse_special=True)
    scripted.say([first_piece() + 4, TURN, first_piece() + 2, EOS], prompt)
    reply = scripted.model.chat(CHAT, stop=["<|turn|>"])
    assert (reply.text, reply.finish_reason) == ("fox", "stop")
    assert scripted.model.chat(CHAT).text == "foxown"


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("x\n{{ a b }}", "m.gguf, line 2, column 6: expected"),
        ("{% for", "m.gguf, line 1, column 7: unexpected"),
        ("{{ raise_exception('Roles must alternate.') }}", "^Roles must alternate.$"),
    ],
)
def test_a_template_that_cannot_be_used_leaves_the_rest_of_the_model(tmp_path, template, words):
    path = write_tiny(tmp_path / "m.gguf", vocab=vocabulary(), tokenizer__chat_template=template)
    with edgellm.Model(path, backend="reference") as model:
        for _ in range(2):
            with pytest.raises(edgellm.TemplateError, match=words):
                model.chat(CHAT)
        generation = model.generate("hello", max_tokens=3, logit_bias={5 + ord("x"): 100})
        assert generation.text == "xxx"
