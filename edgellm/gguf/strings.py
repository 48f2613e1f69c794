"""Walking a metadata array of strings: 64-bit length, bytes, 64-bit length, bytes, ..."""

import struct

import numpy as np
import numpy.typing as npt

_WINDOW = 1 << 18
_SCALAR_RUN = 4096
_LENGTH = struct.Struct("<Q")


def scan_strings(data: bytes, pos: int, count: int) -> npt.NDArray[np.int64]:
    """Positions of the length fields of ``count`` strings that start at ``pos``, then the end of the last.

    Where ``data`` ends too early the result is shorter: its last position is that of the first string
    which does not fit. The work is linear in the bytes walked, whatever they hold.

    Each length chains to the next, which is slow to follow one by one. So guess, then prove: nearly
    every token is shorter than 256 bytes and free of NUL, so wherever a nonzero byte is followed by
    seven zeros there is probably a length field. Guesses are kept only as far as each one leads exactly
    to the next from a position already proved; whatever breaks that is walked one by one.
    """
    pieces: list[npt.NDArray[np.int64]] = []
    found = 0
    while found < count:
        chain = _proved_chain(np.frombuffer(data, np.uint8, min(_WINDOW, len(data) - pos), pos))
        steps = min(len(chain) - 1, count - found)
        if steps > 0:
            pieces.append(chain[:steps] + pos)
            pos += int(chain[steps])
            found += steps
        # Far from the window's end the chain broke: this stretch has long, empty or odd strings.
        if steps <= 0 or int(chain[steps]) < _WINDOW // 2:
            walked = _walk(data, pos, min(_SCALAR_RUN, count - found))
            stuck = len(walked) <= min(_SCALAR_RUN, count - found)
            pieces.append(np.array(walked[:-1], np.int64))
            found += len(walked) - 1
            pos = walked[-1]
            if stuck:
                break
    pieces.append(np.array([pos], np.int64))
    return np.concatenate(pieces)


def _proved_chain(window: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Offsets of the length fields chained from offset 0 whose values need only their lowest byte."""
    empty = np.empty(0, np.int64)
    if len(window) < 8:
        return empty
    zero = window == 0
    two = zero[:-1] & zero[1:]
    four = two[:-2] & two[2:]
    seven = four[:-3] & four[3:]
    fields = np.flatnonzero(seven[1:] > zero[: len(seven) - 1])
    if not len(fields) or fields[0]:
        return empty
    leads_on = fields[:-1] + (window[fields[:-1]].astype(np.int64) + 8) == fields[1:]
    proved = len(leads_on) if leads_on.all() else int(leads_on.argmin())
    return fields[: proved + 1]


def _walk(data: bytes, pos: int, count: int) -> list[int]:
    """Positions of up to ``count`` length fields from ``pos``, then that of the first one left out."""
    positions = [pos]
    end = len(data)
    read = _LENGTH.unpack_from
    for _ in range(count):
        if end - pos < 8:
            break
        (length,) = read(data, pos)
        if length > end - pos - 8:
            break
        pos += 8 + length
        positions.append(pos)
    return positions
