"""Token ids to text while they arrive, one at a time."""

from __future__ import annotations

import codecs

from edgellm.tokenizer.base import Tokenizer

_new_utf8 = codecs.getincrementaldecoder("utf-8")


class StreamDecoder:
    """Turns a stream of ids into text of whole characters. Joined, it is what ``Tokenizer.decode`` gives.

    Bytes of an unfinished character wait for the rest; bytes that can never become one turn into U+FFFD
    at once.

    after: the id that came before the first one fed, where the stream continues a text. Without it the
        stream begins a text, and loses the space that SentencePiece vocabularies put there.
    skip_special: leave out control tokens.
    spelled: control tokens that come as their text all the same.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        after: int | None = None,
        skip_special: bool = True,
        spelled: frozenset[int] = frozenset(),
    ) -> None:
        self._next_bytes = tokenizer.next_bytes
        self._fresh = tokenizer.is_fresh_after(after)
        self._skip_special = skip_special
        self._spelled = spelled
        self._decode = _new_utf8("replace").decode

    def feed(self, token: int) -> str:
        """The text that became complete with this token; often empty.

        Raises:
            VocabularyError: the id lies outside of the vocabulary.
        """
        skip = self._skip_special and token not in self._spelled
        data, self._fresh = self._next_bytes(token, self._fresh, skip)
        return self._decode(data)

    def flush(self) -> str:
        """End the text: an unfinished character comes out as one U+FFFD, otherwise nothing does."""
        return self._decode(b"", True)
