"""Files whose magic, version, counts or key-value pairs lie."""

import struct
import time
import tracemalloc

import pytest

from edgellm.errors import ModelFormatError, UnsupportedModelError
from edgellm.gguf import Reader, ValueType

from . import lying


def refused(data: bytes, match: str, error: type[Exception] = ModelFormatError, peak: int = 10_000_000) -> str:
    """Open bytes, expecting a quick, small refusal that names the file; returns the message."""
    tracemalloc.start()
    start = time.perf_counter()
    try:
        with pytest.raises(error, match=match) as caught:
            Reader.from_buffer(data, "bad.gguf")
        assert tracemalloc.get_traced_memory()[1] < peak
    finally:
        tracemalloc.stop()
    assert time.perf_counter() - start < 20
    message = str(caught.value)
    assert message.startswith("bad.gguf: ")
    assert message.isprintable()
    return message


@pytest.mark.parametrize(
    ("start", "hint"),
    [
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"PK\3\4" + bytes(30), "zip archive"),
        (b"tjgg" + bytes(30), "GGJT"),
        (b"\x1b[2J" + bytes(30), "starts with"),
    ],
)
def test_other_kinds_of_file_are_recognised(start, hint):
    refused(start, rf"not a GGUF file.*{hint}")


@pytest.mark.parametrize("version", [4, 0x7FFF, 0xFFFFFFFF])
def test_future_versions_are_refused_by_name(version):
    refused(lying.gguf(version=version), f"version {version} is not supported", UnsupportedModelError)


def test_version_1_is_refused_and_not_read_with_wide_counts():
    data = b"GGUF" + struct.pack("<III", 1, 0, 0)
    refused(data, "version 1 is not supported", UnsupportedModelError)


def test_version_0_does_not_exist():
    refused(lying.gguf(version=0), "version 0")


@pytest.mark.parametrize("version", [1, 2, 3])
def test_big_endian_files_are_refused_by_name(version):
    data = b"GGUF" + struct.pack(">IQQ", version, 1, 1) + bytes(40)
    refused(data, rf"big-endian GGUF file \(version {version} ", UnsupportedModelError)


@pytest.mark.parametrize("version", [2, 3])
def test_versions_2_and_3_load(version):
    reader = Reader.from_buffer(lying.gguf([lying.u32("n", 7)], version=version))
    assert (reader.version, reader.metadata["n"]) == (version, 7)


@pytest.mark.parametrize("count", [1 << 63, (1 << 64) - 1, 1 << 32, 1])
def test_counts_the_file_cannot_hold(count):
    # 24 bytes: only the head
    if count > 1:
        refused(lying.gguf(n_tensors=count), f"claims {count} tensors.*24 bytes")
    refused(lying.gguf(n_pairs=count), f"claims {count} key-value pairs.*24 bytes")


def test_counts_that_barely_fit_are_still_cheap():
    refused(lying.gguf(n_pairs=10_000) + bytes(200_000), "key 0 is empty")
    refused(lying.gguf(n_tensors=7_000) + bytes(200_000), "name of tensor 0 is empty")


def test_key_length_of_a_gigabyte_in_a_small_file():
    data = lying.gguf(n_pairs=1) + struct.pack("<Q", 1 << 30) + b"k" * 128
    assert len(data) == 160
    refused(data, f"key 0.*{1 << 30} bytes long")


@pytest.mark.parametrize("length", [1 << 30, 1 << 62, (1 << 64) - 1, (1 << 64) - 8])
def test_string_value_longer_than_the_file(length):
    data = lying.gguf([lying.pair("general.name", ValueType.STRING, lying.string("abc", length))])
    message = refused(data, rf"file is {len(data)} bytes, needs at least \d+ for key 'general\.name'")
    assert str(length) in message


def test_unknown_array_element_type_does_not_desynchronise():
    data = lying.gguf([lying.array("a", 99, 3, bytes(12)), lying.u32("b", 1)])
    refused(data, "elements of key 'a' has value type 99")


def test_unknown_value_type():
    refused(lying.gguf([lying.pair("a", 13, bytes(8))]), "key 'a' has value type 13")


def test_array_of_arrays_is_refused():
    data = lying.gguf([lying.array("a", ValueType.ARRAY, 1, struct.pack("<IQ", 0, 0))])
    refused(data, "key 'a' is an array of arrays", UnsupportedModelError)


@pytest.mark.parametrize("kind", [k for k in ValueType if k not in (ValueType.STRING, ValueType.ARRAY)])
@pytest.mark.parametrize("count", [(1 << 62) + 1, (1 << 61) + 1, 1 << 63, (1 << 64) - 1, 5000])
def test_array_count_times_size_does_not_wrap(kind, count):
    data = lying.gguf([lying.array("a", kind, count, bytes(64)), lying.u32("b", 1)])
    refused(data, rf"needs at least \d+ for key 'a' \({count} x {kind}\)")


@pytest.mark.parametrize("count", [1 << 63, (1 << 64) - 1, 1 << 40, 100])
def test_string_array_count_is_checked_before_looping(count):
    refused(lying.gguf([lying.array("a", ValueType.STRING, count, bytes(64))]), f"key 'a' claims {count} strings")


@pytest.mark.parametrize("length", [1 << 40, (1 << 64) - 1, (1 << 64) - 8, (1 << 64) - 24])
def test_string_array_element_longer_than_the_file(length):
    payload = lying.string("one") + lying.string("two", length) + bytes(16)
    refused(lying.gguf([lying.array("a", ValueType.STRING, 3, payload)]), rf"string 1 of key 'a' \({length} bytes\)")


def test_duplicate_keys_are_refused():
    refused(lying.gguf([lying.u32("n", 1), lying.u32("m", 1), lying.u32("n", 2)]), "key 'n' appears twice")


def test_empty_key():
    refused(lying.gguf([lying.u32("", 1)]), "key 0 is empty")


@pytest.mark.parametrize("key", [b"a\0b", b"a\nb", b"a\x1b[31mb", "a\u202eb".encode(), b"a\x7fb"])
def test_keys_with_control_characters_are_refused_and_escaped(key):
    message = refused(lying.gguf([lying.u32(key, 1)]), "key 0.*control characters")
    assert "\\" in message


def test_key_of_wrong_utf8():
    refused(lying.gguf([lying.u32(b"a\xff\xfe", 1)]), r"'a\\xff\\xfe', is not valid UTF-8")


def test_key_length_limit():
    longest = "k" * 65535
    assert Reader.from_buffer(lying.gguf([lying.u32(longest, 5)])).metadata[longest] == 5
    assert len(refused(lying.gguf([lying.u32("k" * 65536, 5)]), "65536 bytes long")) < 300


@pytest.mark.parametrize("value", [2, 255])
def test_bools_are_0_or_1(value):
    refused(lying.gguf([lying.pair("b", ValueType.BOOL, bytes([value]))]), f"key 'b' is a bool of value {value}")
    refused(lying.gguf([lying.array("b", ValueType.BOOL, 3, bytes([0, 1, value]))]), "key 'b' has bools")


@pytest.mark.parametrize("alignment", [0, 1, 4, 24, 48, 1 << 25, 1 << 31, 0xFFFFFFFF])
def test_alignment_must_be_a_power_of_two_in_range(alignment):
    data = lying.gguf(
        [lying.u32("general.alignment", alignment)],
        [lying.tensor("a", [1]), lying.tensor("b", [1], 0, alignment)],
        bytes(256),
    )
    refused(data, rf"'general\.alignment' is {alignment}; it must be a power of two")


def test_negative_alignment_and_alignment_of_another_type():
    negative = lying.pair("general.alignment", ValueType.INT32, struct.pack("<i", -32))
    refused(lying.gguf([negative]), "is -32")
    refused(lying.gguf([lying.text("general.alignment", "32")]), "is string; an integer is needed")


@pytest.mark.parametrize("alignment", [8, 16, 64, 4096])
def test_other_alignments_load(alignment):
    data = lying.gguf(
        [lying.u32("general.alignment", alignment)],
        [lying.tensor("a", [1]), lying.tensor("b", [1], 0, alignment)],
        b"AAAA" + bytes(alignment - 4) + b"BBBB",
        alignment=alignment,
    )
    reader = Reader.from_buffer(data)
    assert reader.alignment == alignment
    assert (bytes(reader.data("a")), bytes(reader.data("b"))) == (b"AAAA", b"BBBB")


def test_a_head_beyond_the_limit_is_refused_without_reading_it_all(monkeypatch):
    monkeypatch.setattr("edgellm.gguf.cursor.HEAD_LIMIT", 4096)
    monkeypatch.setattr("edgellm.gguf.reader.HEAD_LIMIT", 4096)
    monkeypatch.setattr("edgellm.gguf.reader._FIRST_READ", 64)
    refused(lying.gguf([lying.text("t", "x" * 9000)]), "larger than 4096 bytes, at key 't'")
    reader = Reader.from_buffer(lying.gguf([lying.text("t", "x" * 3000)]))
    assert reader.metadata["t"] == "x" * 3000
