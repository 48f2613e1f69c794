import io
import os

import gguf
import numpy as np
import pytest

from edgellm import dtypes
from edgellm.errors import ArgumentError
from edgellm.gguf import Reader, ValueType, write

from . import lying

F32, Q8_0 = dtypes.by_name("F32"), dtypes.by_name("Q8_0")


def written(metadata, tensors=None, **options) -> bytes:
    file = io.BytesIO()
    write(file, metadata, tensors, **options)
    return file.getvalue()


def loaded(metadata, tensors=None, **options) -> Reader:
    return Reader.from_buffer(written(metadata, tensors, **options))


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (0, ValueType.UINT32),
        ((1 << 32) - 1, ValueType.UINT32),
        (-1, ValueType.INT32),
        (1 << 32, ValueType.UINT64),
        ((1 << 64) - 1, ValueType.UINT64),
        (-(1 << 31) - 1, ValueType.INT64),
        (0.5, ValueType.FLOAT32),
        (True, ValueType.BOOL),
        ("ünï", ValueType.STRING),
        ("", ValueType.STRING),
        (np.int16(-3), ValueType.INT16),
        (np.float64(0.1), ValueType.FLOAT64),
        ((ValueType.UINT8, 255), ValueType.UINT8),
        ((ValueType.FLOAT64, 0.1), ValueType.FLOAT64),
    ],
)
def test_scalars_come_back_with_a_sane_type(value, kind):
    metadata = loaded({"k": value}).metadata
    expected = value[1] if isinstance(value, tuple) else value
    assert metadata["k"] == expected
    assert metadata.type_of("k") is kind


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ([1, 2], ValueType.INT32),
        ([-1, 1 << 40], ValueType.INT64),
        ([0, 1 << 63], ValueType.UINT64),
        ([0.5, 1], ValueType.FLOAT32),
        ([True, False], ValueType.BOOL),
        (["a", "", "é"], ValueType.STRING),
        ((3, 4, 5), ValueType.INT32),
        (np.array([1, 2], np.uint8), ValueType.UINT8),
        (np.array([1, 2], ">i2"), ValueType.INT16),
        ((ValueType.UINT32, [1, 2]), ValueType.UINT32),
        ((ValueType.STRING, []), ValueType.STRING),
    ],
)
def test_arrays_come_back_with_a_sane_type(value, kind):
    metadata = loaded({"k": value, "after": 1}).metadata
    expected = value[1] if isinstance(value, tuple) and isinstance(value[0], ValueType) else value
    assert metadata["k"].tolist() == list(expected)
    assert metadata.type_of("k") is kind
    assert metadata["after"] == 1


def test_bytes_become_a_raw_string():
    reader = loaded({"k": [b"a\xff", b""]})
    assert reader.metadata["k"].bytes_list() == [b"a\xff", b""]


def test_metadata_of_a_reader_writes_back_byte_for_byte():
    data = lying.small()
    reader = Reader.from_buffer(data)
    metadata = {key: (reader.metadata.type_of(key), value) for key, value in reader.metadata.items()}
    tensors = {n: (t.dtype, t.shape, reader.data(n)) for n, t in reader.tensors.items()}
    padded = data + bytes(-132 % 32)
    assert written(metadata, tensors) == padded


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("alignment", [8, 32, 128])
def test_tensors_are_aligned_and_come_back(version, alignment):
    tensors = {
        "a": (F32, (3,), np.array([1, 2, 3], np.float32)),
        "b": (Q8_0, (32, 2), bytes(range(68))),
        "scalar": (F32, (), b"\0\0\x80\x3f"),
        "c": (F32, (2, 2), np.arange(4, dtype=np.float32).reshape(2, 2)),
    }
    reader = loaded({"n": 1}, tensors, version=version, alignment=alignment)
    assert (reader.version, reader.alignment) == (version, alignment)
    assert all(t.offset % alignment == 0 for t in reader.tensors.values())
    assert {n: (t.dtype, t.shape) for n, t in reader.tensors.items()} == {n: t[:2] for n, t in tensors.items()}
    assert np.frombuffer(reader.data("a"), "<f4").tolist() == [1, 2, 3]
    assert np.frombuffer(reader.data("c"), "<f4").tolist() == [0, 1, 2, 3]
    assert bytes(reader.data("b")) == bytes(range(68))


def test_gguf_py_reads_what_is_written(tmp_path):
    path = tmp_path / "ours.gguf"
    values = {"general.architecture": "llama", "n": 3, "f": 0.25, "words": ["a", "bé"], "ints": [1, -2], "no": False}
    data = np.arange(64, dtype=np.float32).reshape(2, 32)
    write(path, values, {"w": (F32, (32, 2), data)})
    theirs = gguf.GGUFReader(path)
    assert {k: theirs.fields[k].contents() for k in values} == values
    assert np.array_equal(theirs.tensors[0].data, data)
    assert (theirs.tensors[0].name, theirs.tensors[0].shape.tolist()) == ("w", [32, 2])


@pytest.mark.parametrize(
    ("metadata", "match"),
    [
        ({"": 1}, "key ''"),
        ({"a\n": 1}, r"key 'a\\n'"),
        ({"k" * 65536: 1}, "65535 bytes"),
        ({"k": None}, "key 'k' .*NoneType"),
        ({"k": []}, "empty array needs an explicit type"),
        ({"k": [1, "a"]}, "mixes string, uint32"),
        ({"k": [[1]]}, "no type for list"),
        ({"k": 1 << 64}, "does not fit 64 bits"),
        ({"k": 1e300}, "key 'k' cannot be written"),
        ({"k": (ValueType.UINT8, 256)}, "key 'k' cannot be written"),
        ({"k": (ValueType.STRING, 1)}, "int is no string"),
        ({"k": (ValueType.BOOL, 1)}, "int is no bool"),
        ({"k": (ValueType.ARRAY, 1)}, "key 'k' cannot be written"),
        ({"k": np.zeros((2, 2), np.int32)}, "one dimension, not 2"),
        ({"k": np.zeros(2, np.complex64)}, "no type for NumPy's complex64"),
        ({"general.alignment": 64}, "contradicts the alignment"),
    ],
)
def test_metadata_the_format_does_not_allow(metadata, match):
    with pytest.raises(ArgumentError, match=match):
        written(metadata)


@pytest.mark.parametrize(
    ("name", "tensor", "match"),
    [
        ("t", (F32, (4,), bytes(15)), "takes 16 bytes, not 15"),
        ("t", (F32, (4,), bytes(17)), "takes 16 bytes, not 17"),
        ("t", (Q8_0, (40, 4), bytes(170)), "Q8_0 blocks of 32"),
        ("t", (F32, (0,), b""), r"shape \[0\]"),
        ("t", (F32, (1, 1, 1, 1, 1), bytes(4)), "at most 4 dimensions"),
        ("t", (F32, (2,), np.zeros(4, np.float32)[::2]), "tensor 't' cannot be written"),
        ("t" * 65, (F32, (1,), bytes(4)), "64 bytes"),
        ("", (F32, (1,), bytes(4)), "tensor name ''"),
    ],
)
def test_tensors_the_format_does_not_allow(name, tensor, match):
    with pytest.raises(ArgumentError, match=match):
        written({}, {name: tensor})


@pytest.mark.parametrize("options", [{"version": 1}, {"version": 4}, {"alignment": 0}, {"alignment": 24}])
def test_options_the_format_does_not_allow(options):
    with pytest.raises(ArgumentError):
        written({}, **options)


def test_a_path_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "m.gguf"
    write(path, {"n": 1})
    with pytest.raises(ArgumentError):
        write(path, {"n": None})

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write(path, {"n": 2})
    assert os.listdir(tmp_path) == ["m.gguf"]
    with Reader(path) as reader:
        assert reader.metadata["n"] == 1


@pytest.mark.skipif(os.name == "nt", reason="no umask on Windows")
def test_written_files_have_ordinary_permissions(tmp_path):
    write(tmp_path / "m.gguf", {})
    (tmp_path / "plain").write_bytes(b"")
    assert (tmp_path / "m.gguf").stat().st_mode == (tmp_path / "plain").stat().st_mode
