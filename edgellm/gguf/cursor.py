"""Reading the head of a GGUF file, every step checked against the bytes that are there."""

import struct

import numpy as np
import numpy.typing as npt

from edgellm.errors import ModelFormatError, UnsupportedModelError
from edgellm.gguf.strings import scan_strings
from edgellm.gguf.text import quoted

# The largest heads in use (half a million merges) take 30 MB. A bound keeps a lying file from making
# us walk or copy gigabytes of weights as if they were metadata.
HEAD_LIMIT = 1 << 27

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class MoreNeededError(Exception):
    """The head is longer than the part of the file read so far. Never leaves this package."""


class Cursor:
    """A position in ``data``, the first bytes of a file of ``size`` bytes.

    ``what`` arguments say in the error message what was being read. Raises ModelFormatError where the
    file ends too early, MoreNeededError where only ``data`` does.
    """

    def __init__(self, data: bytes, size: int, source: str) -> None:
        self.data = data
        self.size = size
        self.source = source
        self.pos = 0

    def damaged(self, problem: str) -> ModelFormatError:
        """The error for a file that breaks the format."""
        return ModelFormatError(f"{self.source}: {problem}")

    def unsupported(self, problem: str) -> UnsupportedModelError:
        """The error for a file that keeps to the format but needs what we lack."""
        return UnsupportedModelError(f"{self.source}: {problem}")

    def need(self, n: int, what: str) -> int:
        """Check that ``n`` more bytes are there and step over them; returns where they start."""
        start = self.pos
        if n > self.size - start:
            raise self.damaged(
                f"file is {self.size} bytes, needs at least {start + n} for {what}: "
                "the download is incomplete or the file is damaged"
            )
        if n > len(self.data) - start:
            if n > HEAD_LIMIT - start:
                raise self.damaged(f"metadata is larger than {HEAD_LIMIT} bytes, at {what}")
            raise MoreNeededError
        self.pos = start + n
        return start

    def u32(self, what: str) -> int:
        return int(_U32.unpack_from(self.data, self.need(4, what))[0])

    def u64(self, what: str) -> int:
        return int(_U64.unpack_from(self.data, self.need(8, what))[0])

    def raw_string(self, what: str) -> bytes:
        n = self.u64(f"the length of {what}")
        start = self.need(n, f"{what} ({n} bytes)")
        return self.data[start : start + n]

    def name(self, what: str, limit: int) -> str:
        """A key or tensor name: 1 to ``limit`` bytes of printable UTF-8."""
        n = self.u64(f"the length of {what}")
        if n > limit:
            shown = quoted(self.data[self.pos : min(self.pos + n, self.pos + 64)])
            raise self.damaged(f"{what}, starting {shown}, is {n} bytes long; at most {limit} are allowed")
        start = self.need(n, f"{what} ({n} bytes)")
        raw = self.data[start : start + n]
        if not raw:
            raise self.damaged(f"{what} is empty")
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise self.damaged(f"{what}, {quoted(raw)}, is not valid UTF-8") from None
        if not text.isprintable():
            raise self.damaged(f"{what}, {quoted(raw)}, has control characters")
        return text

    def strings(self, count: int, what: str) -> npt.NDArray[np.int64]:
        """Positions of the length fields of ``count`` strings, and of their end; steps over them."""
        if count > (self.size - self.pos) // 8:
            raise self.damaged(
                f"{what} claims {count} strings, but the file is {self.size} bytes "
                f"and only {self.size - self.pos} are left"
            )
        positions = scan_strings(self.data, self.pos, count)
        self.pos = int(positions[-1])
        if len(positions) <= count:
            # The string that stopped the walk says itself what is wrong with it.
            self.raw_string(f"string {len(positions) - 1} of {what}")
        return positions
