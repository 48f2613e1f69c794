"""The fast walk over string arrays against the obvious one."""

import random
import struct
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgellm.gguf import strings
from edgellm.gguf.strings import scan_strings


def obvious(data: bytes, pos: int, count: int) -> list[int]:
    positions = [pos]
    for _ in range(count):
        length = int.from_bytes(data[pos : pos + 8], "little")
        if pos + 8 > len(data) or pos + 8 + length > len(data):
            break
        pos += 8 + length
        positions.append(pos)
    return positions


def joined(items: list[bytes]) -> bytes:
    return b"".join(struct.pack("<Q", len(item)) + item for item in items)


@pytest.fixture
def small_windows(monkeypatch):
    monkeypatch.setattr(strings, "_WINDOW", 64)
    monkeypatch.setattr(strings, "_SCALAR_RUN", 3)


@pytest.fixture(params=["usual windows", "small windows"])
def windows(request):
    if request.param == "small windows":
        request.getfixturevalue("small_windows")


SHAPES = {
    "tokens": lambda r: r.randbytes(r.randrange(1, 12)).replace(b"\0", b"a"),
    "empty": lambda r: b"",
    "nul": lambda r: bytes(r.randrange(1, 20)),
    "long": lambda r: b"x" * r.randrange(200, 700),
    "fake lengths": lambda r: struct.pack("<Q", r.randrange(1, 9)) * r.randrange(1, 3),
    "binary": lambda r: r.randbytes(r.randrange(0, 30)),
}


@pytest.mark.usefixtures("windows")
@pytest.mark.parametrize("shapes", [[name] for name in SHAPES] + [list(SHAPES), ["tokens"] * 30 + ["long", "empty"]])
def test_positions_match_the_obvious_walk(shapes):
    r = random.Random(7)
    items = [SHAPES[r.choice(shapes)](r) for _ in range(2000)]
    lead = r.randbytes(13)
    data = lead + joined(items) + r.randbytes(50)
    for count in (0, 1, 2, 1999, 2000):
        assert scan_strings(data, 13, count).tolist() == obvious(data, 13, count)


@pytest.mark.usefixtures("windows")
def test_a_cut_anywhere_gives_the_strings_before_it():
    items = [b"abc", b"", b"x" * 300, b"de", b"f"] * 3
    data = joined(items)
    for n in range(len(data)):
        assert scan_strings(data[:n], 0, len(items)).tolist() == obvious(data[:n], 0, len(items))


@given(st.binary(max_size=400), st.integers(0, 60))
def test_arbitrary_bytes_match_the_obvious_walk(data, count):
    assert scan_strings(data, 0, count).tolist() == obvious(data, 0, count)


@pytest.mark.parametrize("item", [b"", b"\0", b"abcdef", b"x" * 256, struct.pack("<Q", 3) + b"abc"])
def test_no_contents_make_it_slow(item):
    """A guard against quadratic work: each is walked in about a tenth of a second."""
    count = 300_000
    data = joined([item]) * count
    start = time.perf_counter()
    assert len(scan_strings(data, 0, count)) == count + 1
    assert time.perf_counter() - start < 10
