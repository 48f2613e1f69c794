"""Files whose tensor table lies about names, shapes, types, sizes or places."""

import logging
import time

import numpy as np
import pytest

from edgellm import dtypes
from edgellm.errors import ModelFormatError, UnsupportedModelError
from edgellm.gguf import Reader

from . import lying
from .test_damaged_head import refused

F32, Q8_0, Q4_K, Q6_K, IQ4_NL = 0, 8, 12, 14, 20


@pytest.mark.parametrize("dims", [[4, 0], [0], [0, 0, 0, 0], [0, 4]])
def test_empty_tensors_are_refused(dims):
    refused(lying.gguf([], [lying.tensor("t", dims)]), rf"tensor 't' has shape \[{', '.join(map(str, dims))}\]; empty")


def test_the_65_byte_file_with_a_zero_dimension():
    data = lying.gguf([], [lying.tensor("t", [4, 0])], alignment=1)
    assert len(data) == 65
    refused(data, "tensor 't' has shape .4, 0.; empty")


@pytest.mark.parametrize("dims", [[1 << 32, 1 << 32], [1 << 63, 2, 1, 1], [1 << 63], [(1 << 64) - 1] * 4])
def test_element_counts_do_not_wrap(dims):
    refused(lying.gguf([], [lying.tensor("t", dims)], bytes(64)), "tensor 't' has shape .*64-bit")


@pytest.mark.parametrize("dims", [[1 << 62], [1 << 31, 1 << 31], [(1 << 63) - 1]])
def test_byte_sizes_do_not_wrap(dims):
    """Element counts that fit 64 bits while bytes do not."""
    refused(lying.gguf([], [lying.tensor("t", dims)], bytes(64)), r"needs at least \d{20} for tensor 't'")


@pytest.mark.parametrize("offset", [(1 << 64) - 32, (1 << 64) - 64, 1 << 63, 96])
def test_offset_plus_size_does_not_wrap(offset):
    data = lying.gguf([], [lying.tensor("t", [16], F32, offset)], bytes(128))
    refused(data, f"file is {len(data)} bytes, needs at least .* for tensor 't' .*offset {offset}")


def test_offset_off_the_alignment():
    refused(lying.gguf([], [lying.tensor("t", [4], F32, 16)], bytes(64)), "offset 16, not a multiple of .* 32")


@pytest.mark.parametrize("n_dims", [5, 9, (1 << 32) - 1])
@pytest.mark.parametrize("backing", [0, 100])
def test_too_many_dimensions(n_dims, backing):
    entry = lying.tensor("t", [1] * min(n_dims, backing), n_dims=n_dims)
    refused(lying.gguf([], [entry]), f"tensor 't' has {n_dims} dimensions")


def test_no_dimensions_are_a_scalar():
    reader = Reader.from_buffer(lying.gguf([], [lying.tensor("t", [])], b"\0\0\x80\x3f"))
    assert reader.tensors["t"].shape == ()
    assert reader.tensors["t"].n_elements == 1
    assert np.frombuffer(reader.data("t"), "<f4").tolist() == [1.0]
    refused(lying.gguf([], [lying.tensor("t", [], Q8_0)], bytes(34)), "rows of 1 elements")


@pytest.mark.parametrize(("kind", "dims", "block"), [(Q4_K, [896, 4], 256), (Q6_K, [896, 4], 256), (Q8_0, [40, 4], 32)])
def test_rows_must_be_whole_blocks(kind, dims, block):
    data = lying.gguf([], [lying.tensor("t", dims, kind)], bytes(10_000))
    refused(data, f"tensor 't' .* rows of {dims[0]} elements are not a whole number of blocks of {block}")


def test_rows_of_whole_blocks_load():
    reader = Reader.from_buffer(lying.gguf([], [lying.tensor("t", [896, 4], Q8_0)], bytes(896 * 4 // 32 * 34)))
    info = reader.tensors["t"]
    assert (info.nbytes, info.dtype.name, info.shape) == (3808, "Q8_0", (896, 4))


@pytest.mark.parametrize("dtype", dtypes.DTYPES, ids=str)
def test_every_type_loads_with_its_size(dtype):
    nbytes = 3 * 2 * dtype.nbytes
    data = lying.gguf([], [lying.tensor("t", [2 * dtype.block, 3], dtype.id)], bytes(nbytes))
    reader = Reader.from_buffer(data)
    assert reader.tensors["t"].dtype is dtype
    assert len(reader.data("t")) == nbytes
    refused(data[:-1], f"file is {len(data) - 1} bytes, needs at least {len(data)} for tensor 't'")


def test_all_unsupported_types_are_listed_at_once():
    entries = [
        lying.tensor("a", [32], 4),
        lying.tensor("b", [32], F32),
        lying.tensor("c", [32], 99),
        lying.tensor("d", [32], 99),
        lying.tensor("e", [32], (1 << 32) - 1),
    ]
    message = refused(lying.gguf([], entries, bytes(9)), "not supported", UnsupportedModelError)
    assert "4 (Q4_2, removed from the format) in 1 tensor, first 'a'" in message
    assert "99 (unknown) in 2 tensors, first 'c'" in message
    assert "4294967295 (unknown) in 1 tensor, first 'e'" in message
    assert "'b'" not in message


@pytest.mark.parametrize("type_id", sorted(dtypes.REMOVED))
def test_removed_types_are_refused_by_name(type_id):
    data = lying.gguf([], [lying.tensor("t", [32], type_id)], bytes(64))
    refused(data, dtypes.REMOVED[type_id], UnsupportedModelError)


def test_types_come_from_the_tensors_not_from_names(tmp_path):
    path = tmp_path / "x-IQ4_XS.gguf"
    entries = [lying.tensor(f"blk.{i}.w", [32], IQ4_NL, 32 * i) for i in range(3)]
    entries.append(lying.tensor("norm", [4], F32, 96))
    path.write_bytes(lying.gguf([lying.u32("general.file_type", 30)], entries, bytes(112)))
    with Reader(path) as reader:
        assert reader.type_counts() == {dtypes.by_name("IQ4_NL"): 3, dtypes.by_name("F32"): 1}


def test_duplicate_tensor_names_are_refused():
    entries = [lying.tensor("token_embd.weight", [8]), lying.tensor("token_embd.weight", [8], F32, 32)]
    refused(lying.gguf([], entries, bytes(64)), r"tensor 'token_embd\.weight' appears twice")


def test_many_similar_names_take_linear_time():
    n = 100_000
    entries = [lying.tensor(f"tensor.{i:06}", [1], F32, 32 * i) for i in range(n)]
    data = lying.gguf([], entries, bytes(32 * n))
    start = time.perf_counter()
    reader = Reader.from_buffer(data)
    assert time.perf_counter() - start < 20
    assert len(reader.tensors) == n
    entries[-1] = lying.tensor("tensor.000000", [1], F32, 32 * (n - 1))
    with pytest.raises(ModelFormatError, match=r"tensor\.000000' appears twice"):
        Reader.from_buffer(lying.gguf([], entries, bytes(32 * n)))


def test_tensor_name_lengths():
    assert list(Reader.from_buffer(lying.gguf([], [lying.tensor("n" * 64, [1])], bytes(4))).tensors) == ["n" * 64]
    for n in (65, 10_000):
        message = refused(lying.gguf([], [lying.tensor("n" * n, [1])], bytes(4)), f"{n} bytes long; at most 64")
        assert len(message) < 300


@pytest.mark.parametrize("name", [b"a\0b", b"a\nb", b"\x1b]0;title\x07", b"\xc3\x28", b""])
def test_odd_tensor_names_are_refused_and_escaped(name):
    refused(lying.gguf([], [lying.tensor(name, [1])], bytes(4)), "name of tensor 0")


def test_overlapping_tensors_are_refused():
    entries = [lying.tensor("a", [16]), lying.tensor("b", [16], F32, 32)]
    refused(lying.gguf([], entries, bytes(96)), "tensors 'a' and 'b' overlap")


def test_tensors_need_not_lie_in_table_order():
    entries = [lying.tensor("b", [8], F32, 32), lying.tensor("a", [8], F32, 0)]
    reader = Reader.from_buffer(lying.gguf([], entries, b"a" * 32 + b"b" * 32))
    assert list(reader.tensors) == ["b", "a"]
    assert bytes(reader.data("b")) == b"b" * 32


@pytest.mark.parametrize(("extra", "warns"), [(0, False), (28, False), (100, True)])
def test_padding_at_the_end_may_be_there_or_not(extra, warns, caplog):
    data = lying.gguf([], [lying.tensor("t", [1])], b"ABCD" + bytes(extra))
    with caplog.at_level(logging.WARNING, "edgellm"):
        reader = Reader.from_buffer(data, "t.gguf")
    assert bytes(reader.data("t")) == b"ABCD"
    expected = ["t.gguf: 100 unknown bytes after the last tensor"] if warns else []
    assert [record.getMessage() for record in caplog.records] == expected


def test_a_gap_between_tensors_loads_with_a_warning(caplog):
    entries = [lying.tensor("a", [8]), lying.tensor("b", [8], F32, 96)]
    with caplog.at_level(logging.WARNING, "edgellm"):
        reader = Reader.from_buffer(lying.gguf([], entries, bytes(96) + b"b" * 32))
    assert bytes(reader.data("b")) == b"b" * 32
    assert "64 unused bytes before tensor 'b'" in caplog.text


@pytest.mark.parametrize("n", [0, 3, 4, 7, 8, 12, 23])
def test_files_cut_inside_the_fixed_head(n):
    refused(lying.small()[:n], rf"file is {n} bytes, needs at least \d+ for")


def test_files_cut_anywhere_say_how_many_bytes_are_missing():
    data = lying.small()
    for n in range(len(data)):
        # Counts are compared with what is left before anything is read.
        with pytest.raises(ModelFormatError, match=rf"file is {n} bytes.*(needs at least|only \d+ are left)"):
            Reader.from_buffer(data[:n])


def test_file_cut_at_the_start_of_the_data_and_one_byte_before_its_end():
    data = lying.small()
    start = Reader.from_buffer(data).tensors["norm"].offset
    refused(data[:start], rf"file is {start} bytes, needs at least {start + 64} for tensor 'norm'")
    refused(data[:-1], rf"file is {len(data) - 1} bytes, needs at least {len(data)} for tensor 'w'")
