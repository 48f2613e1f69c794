"""Stop strings in text that arrives in chunks."""

from __future__ import annotations

from collections.abc import Sequence

from edgellm.errors import ArgumentError


class StopMatcher:
    """Cuts a stream of text before the first stop string, however the text is cut into chunks.

    The result is that of a plain search in the whole text: the stop that begins first wins, of several that
    begin at the same place the shortest. Text is held back only while a stop may still come of it.

    matched: the stop that was found, or None. It can be set by :meth:`flush` too, where a found stop had to
        wait for a longer one that began before it.

    Raises:
        ArgumentError: a stop is empty or not a string.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if isinstance(stops, str):
            raise ArgumentError("stops must be a sequence of strings, not one string")
        for stop in stops:
            if not isinstance(stop, str) or not stop:
                raise ArgumentError(f"a stop must be a non-empty string, not {stop!r}")
        # Shortest first, so that the first of equally early matches is the shortest.
        self._stops = sorted(set(stops), key=len)
        self._held = ""
        self.matched: str | None = None

    def feed(self, text: str) -> tuple[str, bool]:
        """Take a chunk; return the text that may go out and whether a stop ended the stream.

        After a stop nothing comes out any more.
        """
        if self.matched is not None:
            return "", True
        if not self._stops:
            return text, False
        text = self._held + text
        at, stop = self._search(text)
        safe = self._safe_length(text, at)
        if stop is not None and safe == at:
            self.matched, self._held = stop, ""
            return text[:at], True
        self._held = text[safe:]
        return text[:safe], False

    def flush(self) -> str:
        """End the text: what was held back, up to a stop in it."""
        text, self._held = self._held, ""
        at, self.matched = (0, self.matched) if self.matched is not None else self._search(text)
        return text[:at]

    def _search(self, text: str) -> tuple[int, str | None]:
        best, found = len(text), None
        for stop in self._stops:
            at = text.find(stop, 0, best + len(stop) - 1)
            if at >= 0:
                best, found = at, stop
        return best, found

    def _safe_length(self, text: str, end: int) -> int:
        """Where the first unfinished stop begins, if that is before ``end``; else ``end``."""
        for stop in self._stops:
            at = text.find(stop[0], max(0, len(text) - len(stop) + 1), end)
            while at >= 0:
                if stop.startswith(text[at:]):
                    end = at
                    break
                at = text.find(stop[0], at + 1, end)
        return end
