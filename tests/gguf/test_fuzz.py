"""Whatever happens to the bytes of a file: it loads, or the error is one of ours, soon and cheaply."""

import random
import struct
import time
import tracemalloc
from collections.abc import Iterator

from edgellm.errors import ModelFormatError, UnsupportedModelError
from edgellm.gguf import GGUFArray, Reader

from . import lying

EXTREMES_32 = [0, 1, 5, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]
EXTREMES_64 = [0, 1, 1 << 30, (1 << 62) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 32, (1 << 64) - 1]


def mutations(data: bytes, r: random.Random) -> Iterator[bytes]:
    """Every byte replaced in three ways, every cut, and every 4 and 8 bytes set to an extreme."""
    for i in range(len(data)):
        yield data[:i]
        for byte in {0, 255, data[i] ^ (1 << r.randrange(8))}:
            yield data[:i] + bytes([byte]) + data[i + 1 :]
        yield data[:i] + struct.pack("<I", r.choice(EXTREMES_32)) + data[i + 4 :]
        yield data[:i] + struct.pack("<Q", r.choice(EXTREMES_64)) + data[i + 8 :]
        # Bytes lost, repeated or strewn in.
        n = r.randrange(1, 40)
        yield data[:i] + data[i + n :]
        yield data[:i] + data[max(0, i - n) : i] + data[i:]
        yield data[:i] + r.randbytes(n) + data[i:]


def use(data: bytes) -> bool:
    """Open a file and touch all that it holds; whether that went well."""
    problem = None
    try:
        reader = Reader.from_buffer(data, "fuzz.gguf")
        for value in reader.metadata.values():
            if isinstance(value, GGUFArray):
                value.tolist()
        for name, info in reader.tensors.items():
            assert len(reader.data(name)) == info.nbytes
    except (ModelFormatError, UnsupportedModelError) as error:
        problem = str(error)
    if problem is None:
        return True
    assert problem.startswith("fuzz.gguf: ")
    assert problem.isprintable()
    assert len(problem) < 2000
    return False


def test_any_damage_to_a_small_file_loads_or_is_our_error():
    data = lying.small()
    assert use(data)
    outcomes = {True: 0, False: 0}
    tracemalloc.start()
    try:
        for mutated in mutations(data, random.Random(10)):
            tracemalloc.reset_peak()
            start = time.perf_counter()
            outcomes[use(mutated)] += 1
            assert time.perf_counter() - start < 10
            assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()
    # Damage to strings and weights goes unnoticed, damage to counts does not.
    assert min(outcomes.values()) > len(data)


def test_several_damages_at_once():
    r = random.Random(11)
    data = lying.small()
    for _ in range(3000):
        mutated = bytearray(data)
        for _ in range(r.randrange(2, 6)):
            i = r.randrange(len(mutated))
            mutated[i] = r.choice([0, 1, 255, r.randrange(256)])
        use(bytes(mutated))


def test_noise_after_a_valid_start():
    r = random.Random(12)
    for n in range(0, 300, 3):
        use(b"GGUF" + struct.pack("<IQQ", 3, r.choice([0, 1, 3]), r.choice([0, 1, 5])) + r.randbytes(n))
        use(r.randbytes(n))
