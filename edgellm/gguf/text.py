"""Names from untrusted files, made safe for messages and terminals."""

import os

_LIMIT = 80


def _escape(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def quoted(text: str | bytes) -> str:
    """Text in quotes, unprintable characters and wrong UTF-8 escaped, long text cut in the middle."""
    if isinstance(text, bytes):
        # Cut before decoding: a hostile key may have megabytes.
        head = text if len(text) <= 4 * _LIMIT else text[: 4 * _LIMIT] + b"..."
        shown = head.decode("utf-8", "backslashreplace")
    else:
        shown = text
    size = len(text)
    if len(shown) > _LIMIT:
        unit = "bytes" if isinstance(text, bytes) else "characters"
        return f"'{_escape(shown[:_LIMIT])}...' ({size} {unit})"
    return f"'{_escape(shown)}'"


def path_text(path: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> str:
    """A path as it may be shown: whole, with control and undecodable characters escaped."""
    return _escape(os.fsdecode(path))
