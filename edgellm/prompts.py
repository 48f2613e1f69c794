"""From text and conversations to the ids a model reads: the tokenizer and chat template of a file, made when needed."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from edgellm.chat import ChatOptions
from edgellm.errors import ArgumentError, VocabularyError
from edgellm.segments import Marker, Segments

if TYPE_CHECKING:
    from edgellm.chat import ChatTemplate
    from edgellm.chat.recognise import ReplyFormat
    from edgellm.tokenizer import Tokenizer

Messages = Sequence[Mapping[str, Any]]
TEMPLATE_KEY = "tokenizer.chat_template"
_AS_USUAL = ChatOptions()


@dataclass(frozen=True, slots=True)
class Prompt:
    """A conversation written out."""

    ids: list[int]
    text: str
    dropped: int = 0
    """Tokens of older turns that were left out."""


class Prompts:
    """The textual side of a model.  Safe to use from several threads; needs the metadata only, not the file."""

    def __init__(self, metadata: Mapping[str, Any], name: str) -> None:
        self._metadata = metadata
        self._name = name
        self._lock = threading.RLock()
        self._tokenizer: Tokenizer | None = None
        self._templates: dict[str, ChatTemplate] = {}
        self._own: ChatTemplate | None = None
        self._breakers: dict[tuple[str, ...], list[tuple[int, ...]]] = {}

    @property
    def has_vocabulary(self) -> bool:
        """Whether the file claims to have a vocabulary, usable or not."""
        return self._metadata.get("tokenizer.ggml.model") not in (None, "no_vocab")

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, built at the first use.  Raises VocabularyError for a model without a vocabulary."""
        with self._lock:
            if self._tokenizer is None:
                if not self.has_vocabulary:
                    raise VocabularyError(
                        f"{self._name}: this model has no vocabulary, so it takes and gives token ids only"
                    )
                from edgellm.tokenizer import load_tokenizer

                self._tokenizer = load_tokenizer(self._metadata, self._name)
            return self._tokenizer

    @property
    def template(self) -> ChatTemplate:
        """The chat template of the file, or the default one.  Raises TemplateError where there is neither."""
        return self.named_template("")

    def template_for(self, options: ChatOptions) -> ChatTemplate:
        """The template that suits the arguments: files may have others for tools and for documents.

        Raises TemplateError where the file has none and none is given.
        """
        if options.chat_template is not None:
            return self._given_template(options.chat_template)
        for given, name in ((options.tools, "tool_use"), (options.documents, "rag")):
            if given and isinstance(self._metadata.get(f"{TEMPLATE_KEY}.{name}"), str):
                return self.named_template(name)
        return self.template

    def named_template(self, name: str) -> ChatTemplate:
        """The template of the file with a name such as "tool_use"; the usual one has none."""
        with self._lock:
            if name not in self._templates:
                self._templates[name] = self._load_template(name)
            return self._templates[name]

    def _load_template(self, name: str) -> ChatTemplate:
        from edgellm.chat import default_template

        source = self._metadata.get(f"{TEMPLATE_KEY}.{name}" if name else TEMPLATE_KEY)
        if isinstance(source, str):
            return self._made(source, f"{self._name} ({name})" if name else self._name)
        bos, eos = self._ends()
        return default_template(_Spellings(self.tokenizer), bos_token=bos, eos_token=eos)

    def _given_template(self, source: str) -> ChatTemplate:
        """A template of the caller, who is likely to use the same one again."""
        with self._lock:
            if self._own is None or self._own.source != source:
                self._own = self._made(source, "chat_template")
            return self._own

    def _made(self, source: str, name: str) -> ChatTemplate:
        from edgellm.chat import ChatTemplate

        bos, eos = self._ends()
        return ChatTemplate(source, bos_token=bos, eos_token=eos, name=name)

    def _ends(self) -> tuple[str, str]:
        """The spellings of BOS and EOS; nothing where the model has none."""
        tokenizer = self.tokenizer
        bos, eos = ("" if token is None else tokenizer.piece(token) for token in (tokenizer.bos_id, tokenizer.eos_id))
        return bos, eos

    def encode(self, text: str, *, parse_special: bool) -> list[int]:
        """Return the ids of a prompt: with one BOS in front if the model wants it, never with an EOS behind.

        A parsed text that begins with the BOS text has its one already.  Raises ArgumentError for a prompt without
        a single token.
        """
        return self._encode([(text, parse_special)])

    def _encode(self, segments: Segments) -> list[int]:
        tokenizer = self.tokenizer
        ids = tokenizer.encode_segments(segments, add_special=False)
        bos = tokenizer.bos_id
        # Unparsed text never encodes to BOS, so text that spells it stays text and does not count.
        if tokenizer.add_bos and bos is not None and ids[:1] != [bos]:
            ids.insert(0, bos)
        if not ids:
            raise ArgumentError("prompt is empty, and this model has no BOS token to begin with: give it some text")
        return ids

    def encode_chat(self, messages: Messages, options: ChatOptions = _AS_USUAL) -> list[int]:
        """Return the ids of a conversation; see `prepare`."""
        return self.prepare(messages, options).ids

    def prepare(self, messages: Messages, options: ChatOptions) -> Prompt:
        """Return a conversation ready for the assistant's turn.

        Control tokens come from the template alone, unless `options.parse_special` lets messages, tools and documents
        spell them too.
        """
        template = self.template_for(options)
        if options.parse_special:
            text = options.render(template, messages, options.tools, options.documents)
            return Prompt(self.encode(text, parse_special=True), text)
        given = (messages, options.tools, options.documents)
        marker = Marker(given, self._spelled)
        segments = marker.segments(options.render(template, *marker.mark(given)))
        return Prompt(self._encode(segments), "".join(text for text, _ in segments))

    def extended(self, prompt: Prompt, text: str) -> Prompt:
        """Return the prompt with more of the reply in it, in which control tokens may be spelled."""
        more = self.tokenizer.encode(text, add_special=False, parse_special=True)
        return replace(prompt, ids=[*prompt.ids, *more], text=prompt.text + text)

    def reply_tokens(self, format: ReplyFormat) -> frozenset[int]:
        """Return the control tokens that are read as text in replies of a format."""
        tokenizer = self.tokenizer
        ids = map(tokenizer.id_of, format.tokens)
        return frozenset(token for token in ids if token is not None and tokenizer.is_control(token))

    def _spelled(self, text: str) -> frozenset[str]:
        """The spellings of control tokens that a text contains."""
        tokenizer = self.tokenizer
        found = set(tokenizer.encode(text, add_special=False, parse_special=True))
        return frozenset(tokenizer.piece(token) for token in found if tokenizer.is_control(token))

    def prepare_fitting(self, messages: Messages, n_tokens: int, options: ChatOptions) -> Prompt:
        """Return the conversation without its oldest turns, as many as it takes to fit in `n_tokens`.

        System messages and the last message stay, so the result may still be too long.
        """
        prompt = self.prepare(messages, options)
        whole, kept = len(prompt.ids), list(messages)
        while len(prompt.ids) > n_tokens and (turn := _oldest_turn(kept)):
            del kept[turn.start : turn.stop]
            prompt = self.prepare(kept, options)
        return replace(prompt, dropped=whole - len(prompt.ids))

    def stop_ids(self, stops: Sequence[str]) -> frozenset[int]:
        """Return the ids of the stop strings that are control tokens, whose text never shows up in the output."""
        tokenizer = self.tokenizer
        ids = ((stop, tokenizer.id_of(stop)) for stop in stops)
        return frozenset(token for _, token in ids if token is not None and tokenizer.is_control(token))

    def breakers(self, texts: Sequence[str]) -> Sequence[tuple[int, ...]]:
        """Return the token sequences that spell `texts`, for `Sampler`; none without a vocabulary."""
        if not self.has_vocabulary:
            return ()
        key = tuple(texts)
        with self._lock:
            if key not in self._breakers:
                from edgellm.breakers import token_sequences

                self._breakers[key] = token_sequences(key, self.tokenizer)
            return self._breakers[key]


class _Spellings:
    """The texts of a vocabulary's tokens, as a container."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and self._tokenizer.id_of(text) is not None


def _oldest_turn(messages: Messages) -> range:
    """The indices of the oldest message that is no system message, and of the replies to it; never the last message."""
    start = next((i for i, m in enumerate(messages) if m.get("role") not in ("system", "developer")), len(messages))
    stop = start + 1
    while stop < len(messages) and messages[stop].get("role") != "user":
        stop += 1
    return range(start, min(stop, len(messages) - 1))
