"""Opening, mapping, closing: what a Reader does with the file system."""

import gc
import os
import sys
import time
import tracemalloc

import gguf
import numpy as np
import pytest

from edgellm import dtypes
from edgellm.errors import ClosedError, ModelFormatError, ModelNotFoundError
from edgellm.gguf import Reader
from edgellm.gguf.paths import windows_path

from . import lying


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "small.gguf"
    file.write_bytes(lying.small())
    return file


def open_files() -> int:
    """Descriptors and mappings of this process that lead to a test file."""
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("needs /proc to count open files")
    links = 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            links += ".gguf" in os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
    with open("/proc/self/maps") as maps:
        return links + sum(".gguf" in line for line in maps)


@pytest.mark.parametrize("form", [str, os.fspath, os.fsencode, lambda p: p])
@pytest.mark.parametrize("copy", [False, True])
def test_paths_of_every_kind(path, form, copy):
    with Reader(form(path), copy=copy) as reader:
        assert bytes(reader.data("norm")) == bytes(range(64))
        assert reader.tensors["w"].shape == (32, 2)
        assert reader.nbytes == path.stat().st_size
        assert reader.name == str(path)
        assert reader.metadata["general.architecture"] == "llama"


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
def test_buffers_of_every_kind(buffer):
    reader = Reader.from_buffer(buffer(lying.small()))
    assert bytes(reader.data("norm")) == bytes(range(64))
    reader.check_unchanged()
    assert "<memory>" in repr(reader)


@pytest.mark.parametrize(
    "name",
    [
        "папка",
        "日本\u3000語",
        "Ž and ß",
        "🦙",
        "name with spaces",
        "e\u0301 decomposed",
        "'quotes\" $(x) %s {}",
    ],
)
def test_file_and_folder_names_of_any_script(tmp_path, name):
    folder = tmp_path / name.replace('"', "") / "sub"
    folder.mkdir(parents=True)
    file = folder / (name.replace('"', "") + ".gguf")
    file.write_bytes(lying.small())
    for form in (os.fspath(file), os.fsencode(file)):
        with Reader(form) as reader:
            assert bytes(reader.data("norm")) == bytes(range(64))


def test_paths_over_260_characters(tmp_path):
    folder = tmp_path
    for _ in range(4):
        folder /= "d" * 80
    folder.mkdir(parents=True)
    file = folder / "m.gguf"
    file.write_bytes(lying.small())
    with Reader(file) as reader:
        assert len(reader.name) > 260


def test_long_windows_paths_become_verbatim():
    deep = "\\d" * 140
    assert windows_path("C:\\m.gguf") == "C:\\m.gguf"
    assert windows_path(f"C:{deep}/m.gguf") == f"\\\\?\\C:{deep}\\m.gguf"
    assert windows_path(f"\\\\server\\share{deep}\\m.gguf") == f"\\\\?\\UNC\\server\\share{deep}\\m.gguf"
    assert windows_path(f"\\\\?\\C:{deep}\\m.gguf") == f"\\\\?\\C:{deep}\\m.gguf"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux takes any bytes as a file name")
def test_undecodable_and_control_characters_in_paths_are_escaped(tmp_path):
    name = os.fsencode(tmp_path) + b"/a\xff\x1b[31m.gguf"
    with open(name, "wb") as file:
        file.write(b"GGUF")
    with pytest.raises(ModelFormatError) as caught:
        Reader(name)
    assert r"a\udcff\x1b[31m.gguf: file is 4 bytes" in str(caught.value)
    assert str(caught.value).isprintable()


def test_missing_files_folders_and_devices(tmp_path):
    for bad in (tmp_path / "none.gguf", tmp_path, "", "a\0b", tmp_path / "none.gguf" / "x"):
        with pytest.raises(ModelNotFoundError):
            Reader(bad)
    with pytest.raises(FileNotFoundError, match=r"none\.gguf: no such file"):
        Reader(tmp_path / "none.gguf")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_named_pipe_is_refused_instead_of_waited_for(tmp_path):
    pipe = tmp_path / "p.gguf"
    os.mkfifo(pipe)
    with pytest.raises(ModelNotFoundError, match="not a regular file"):
        Reader(pipe)


@pytest.mark.parametrize("cut", [0, 3, 20, 200, -1])
@pytest.mark.parametrize("copy", [False, True])
def test_a_failed_open_is_one_error_and_leaves_no_handle(path, cut, copy, monkeypatch):
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    path.write_bytes(lying.small()[:cut])
    with pytest.raises(ModelFormatError) as caught:
        Reader(path, copy=copy)
    # While the error, with all its frames, is still alive.
    assert open_files() == 0
    path.unlink()
    assert "small.gguf: file is" in str(caught.value)
    del caught
    gc.collect()
    assert unraisable == []


def test_closing_lets_go_at_once(path):
    reader = Reader(path)
    assert open_files() > 0
    reader.close()
    reader.close()
    assert open_files() == 0
    for use in (lambda: reader.data("norm"), reader.check_unchanged):
        with pytest.raises(ClosedError, match=r"small\.gguf was closed"):
            use()
    assert reader.metadata["general.architecture"] == "llama"
    assert list(reader.tensors) == ["norm", "w"]


def test_views_outlive_close_and_the_last_one_unmaps(path):
    with Reader(path) as reader:
        view = reader.data("norm")
        array = np.frombuffer(reader.data("norm"), np.uint8)
    assert bytes(view) == bytes(range(64))
    del view
    gc.collect()
    assert array.tolist() == list(range(64))
    assert open_files() > 0
    del array
    gc.collect()
    assert open_files() == 0


def test_losing_a_reader_warns_of_nothing(path, monkeypatch):
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    reader = Reader(path)
    view = reader.data("w")
    del reader, view
    gc.collect()
    assert open_files() == 0
    assert unraisable == []


def test_tensor_data_is_read_only_and_not_copied(path):
    data = bytearray(lying.small())
    reader = Reader.from_buffer(data)
    offset = reader.tensors["norm"].offset
    view = reader.data("norm")
    data[offset] = 99
    assert view[0] == 99
    assert view.readonly
    with Reader(path) as mapped, mapped.data("norm") as view:
        assert view.readonly
    with pytest.raises(KeyError):
        reader.data("none")


@pytest.mark.skipif(os.name == "nt", reason="Windows does not let a mapped file be shortened")
@pytest.mark.parametrize("size", [0, 10, 4097, -1, "longer"])
def test_a_file_changed_while_mapped_is_noticed_before_it_is_touched(path, size):
    path.write_bytes(lying.gguf([], [lying.tensor("t", [1 << 14])], bytes(1 << 16)))
    whole = path.stat().st_size
    with Reader(path) as reader:
        reader.check_unchanged()
        new = whole + 5 if size == "longer" else size % whole
        os.truncate(path, new)
        for use in (reader.check_unchanged, lambda: reader.data("t")):
            with pytest.raises(ModelFormatError, match=f"was {whole} bytes when it was opened and is {new} now"):
                use()


@pytest.mark.skipif(os.name == "nt", reason="Windows does not let an open file be replaced")
def test_replacing_a_mapped_file_by_rename_is_harmless(path, tmp_path):
    with Reader(path) as reader:
        other = tmp_path / "other"
        other.write_bytes(b"GGUF")
        os.replace(other, path)
        reader.check_unchanged()
        assert bytes(reader.data("norm")) == bytes(range(64))


def test_a_copy_needs_the_file_no_more(path):
    with Reader(path, copy=True) as reader:
        assert open_files() == 0
        os.truncate(path, 0)
        reader.check_unchanged()
        assert bytes(reader.data("norm")) == bytes(range(64))


def test_heads_longer_than_the_first_read(path, monkeypatch):
    monkeypatch.setattr("edgellm.gguf.reader._FIRST_READ", 10)
    with Reader(path) as reader:
        assert reader.metadata["tokenizer.ggml.tokens"].tolist()[-1] == "x" * 300
        assert bytes(reader.data("norm")) == bytes(range(64))


def test_a_large_vocabulary_opens_quickly_and_without_a_list_of_strings(tmp_path):
    count = 262_144
    words = b"".join(lying.string(f"word{i}") for i in range(count))
    file = tmp_path / "large.gguf"
    file.write_bytes(lying.gguf([lying.array("tokens", 8, count, words)]))
    start = time.perf_counter()
    Reader(file).close()
    assert time.perf_counter() - start < 20
    tracemalloc.start()
    try:
        with Reader(file) as reader:
            current, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The bytes and 8 for the position of each; Python strings alone would take 60 each.
    assert current < len(words) + 8 * count + 100_000
    assert peak < 4 * len(words)
    assert reader.metadata["tokens"][count - 1] == f"word{count - 1}"


def test_files_of_gguf_py_are_read_alike(tmp_path):
    file = tmp_path / "theirs.gguf"
    rng = np.random.default_rng(1)
    f32 = rng.standard_normal((3, 64)).astype(np.float32)
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_block_count(2)
    writer.add_rope_freq_base(1e6)
    writer.add_array("tokens", ["a", "bé", ""])
    writer.add_array("ints", [1, -2, 3])
    writer.add_bool("flag", False)
    writer.add_tensor("f32", f32)
    writer.add_tensor("f16", f32.astype(np.float16))
    q8 = gguf.quantize(f32, gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("q8", q8, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    with Reader(file) as reader:
        metadata = dict(reader.metadata)
        assert [metadata.pop(key).tolist() for key in ("tokens", "ints")] == [["a", "bé", ""], [1, -2, 3]]
        assert metadata == {
            "general.architecture": "llama",
            "llama.block_count": 2,
            "llama.rope.freq_base": 1e6,
            "flag": False,
        }
        assert {n: (t.dtype.name, t.shape) for n, t in reader.tensors.items()} == {
            "f32": ("F32", (64, 3)),
            "f16": ("F16", (64, 3)),
            "q8": ("Q8_0", (64, 3)),
        }
        assert np.array_equal(np.frombuffer(reader.data("f32"), "<f4").reshape(3, 64), f32)
        assert bytes(reader.data("q8")) == q8.tobytes()
        assert reader.type_counts()[dtypes.by_name("Q8_0")] == 1
