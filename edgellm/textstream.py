"""Ids to the text that a consumer gets: whole characters, up to a stop string."""

from __future__ import annotations

from collections.abc import Sequence

from edgellm.tokenizer import StopMatcher, StreamDecoder, Tokenizer


class TextStream:
    """Decodes a completion while it is made.  See `edgellm.engine.request.TextOutput`."""

    def __init__(
        self, tokenizer: Tokenizer, after: int | None, stops: Sequence[str], spelled: frozenset[int] = frozenset()
    ) -> None:
        """`after` is the last id of the prompt: whether the first word brings its space depends on it.

        `spelled` are control tokens that come as text, because someone downstream reads them.
        """
        self.stopped = False
        self._n_vocab = tokenizer.n_vocab
        self._decoder = StreamDecoder(tokenizer, after, spelled=spelled)
        self._matcher = StopMatcher(stops) if stops else None

    def feed(self, token: int) -> str:
        """Return the text that is certain now."""
        # Heads are often padded to a round size: an id without a token has no text.
        text = self._decoder.feed(token) if token < self._n_vocab else ""
        if self._matcher is None:
            return text
        text, self.stopped = self._matcher.feed(text)
        return text

    def flush(self) -> str:
        """Return what was held back: half a character, or text that might have become a stop string."""
        tail = self._decoder.flush()
        if self._matcher is None:
            return tail
        if self.stopped:
            return ""
        text, self.stopped = self._matcher.feed(tail)
        return text if self.stopped else text + self._matcher.flush()
