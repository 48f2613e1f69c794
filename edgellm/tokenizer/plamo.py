"""PLaMo 2's vocabularies (``tokenizer.ggml.model`` is ``plamo2``): the cheapest pieces, whole texts at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edgellm.tokenizer.base import Tokenizer
from edgellm.tokenizer.fields import Fields
from edgellm.tokenizer.prefixes import Prefixes
from edgellm.tokenizer.special import read_specials
from edgellm.tokenizer.vocabulary import TokenType, byte_value, read_vocabulary

_DEFAULTS = {
    "unk": (0, b"<|plamo:unk|>"),
    "bos": (1, b"<|plamo:bos|>"),
    "eos": (2, b"<|plamo:eos|>"),
    "pad": (3, b"<|plamo:pad|>"),
}
# Scores are counted in ten-thousandths; a piece below the second is never taken.
_SCALE = 10_000
_BYTES_COST = 10_000_000
_LOWEST_SCORE = -20_000_000
_BYTE_ORDER_MARK = "\ufeff"


class Plamo2Tokenizer(Tokenizer):
    """Encodes from the end of a text, by the sum of scores; of equals, the longest piece. Characters become bytes
    where no piece is cheaper.

    Raises:
        ModelFormatError: the vocabulary contradicts itself, or lacks byte tokens.
    """

    def __init__(self, fields: Fields) -> None:
        vocabulary, pieces = read_vocabulary(fields)
        super().__init__(fields, vocabulary, read_specials(fields, vocabulary, add_bos=False, defaults=_DEFAULTS))
        scores = fields.scores(len(pieces))
        if scores is None:
            raise fields.error("scores", "is missing, and text cannot be encoded without it")
        found = {byte_value(pieces[token]): token for token in vocabulary.ids_of_type(TokenType.BYTE)}
        missing = [byte for byte in range(256) if byte not in found]
        if missing:
            raise fields.error("tokens", f"has no byte token <0x{missing[0]:02X}>, which any text may need")
        self._byte_ids = [found[byte] for byte in range(256)]
        self._costs = _costs(pieces, scores, vocabulary.types)
        self._prefixes = Prefixes(self._costs)

    def _encode_text(self, text: str, fresh: bool) -> list[int]:
        text = text.removeprefix(_BYTE_ORDER_MARK)
        ids: list[int] = []
        place = 0
        for length, token in self._cheapest(text):
            if token is None:
                ids += (self._byte_ids[byte] for byte in text[place].encode())
            else:
                ids.append(token)
            place += length
        return ids

    def _cheapest(self, text: str) -> list[tuple[int, int | None]]:
        """Lengths and tokens of the cheapest pieces; no token: a character to be written in bytes."""
        n = len(text)
        sums = [0] * (n + 1)
        steps: list[tuple[int, int | None]] = [(1, None)] * n
        for place in range(n - 1, -1, -1):
            least = None
            for length in self._prefixes.lengths(text, place):
                entry = self._costs.get(text[place : place + length])
                if entry is not None:
                    total = sums[place + length] + entry[1]
                    if least is None or total < least:
                        least, steps[place] = total, (length, entry[0])
            in_bytes = sums[place + 1] + _BYTES_COST
            if least is None or in_bytes < least:
                least, steps[place] = in_bytes, (1, None)
            sums[place] = least
        path = []
        place = 0
        while place < n:
            path.append(steps[place])
            place += steps[place][0]
        return path

    def _decode_byte(self, piece: bytes) -> bytes:
        value = byte_value(piece)
        return piece if value is None else bytes((value,))

    def _decode_piece(self, piece: bytes) -> bytes:
        return piece


def _costs(
    pieces: list[bytes], scores: npt.NDArray[np.float32], types: npt.NDArray[np.uint8]
) -> dict[str, tuple[int, int]]:
    """Text → token and cost of every piece that text may become; of equal ones the last counts."""
    scaled = scores.astype(np.float64) * _SCALE
    usable = np.isfinite(scaled) & ~np.isin(types, (TokenType.BYTE, TokenType.CONTROL, TokenType.USER_DEFINED))
    rounded = np.trunc(np.where(usable, scaled, _LOWEST_SCORE) + np.copysign(0.5, scaled))
    tokens = np.flatnonzero(usable & (rounded > _LOWEST_SCORE)).tolist()
    return {pieces[token].decode("utf-8", "replace"): (token, -int(rounded[token])) for token in tokens}
