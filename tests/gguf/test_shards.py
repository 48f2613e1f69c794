import os
import shutil

import pytest

from edgellm import dtypes
from edgellm.errors import ModelFormatError, ModelNotFoundError
from edgellm.gguf import Reader, ShardedReader, ValueType, open_model, write

from .test_reader import open_files

F32 = dtypes.by_name("F32")


def split_keys(number: int, count: int, total: int) -> dict[str, object]:
    return {
        "split.no": (ValueType.UINT16, number),
        "split.count": (ValueType.UINT16, count),
        "split.tensors.count": (ValueType.INT32, total),
    }


def name(number: int, count: int = 3) -> str:
    return f"mödel-{number:05}-of-{count:05}.gguf"


@pytest.fixture
def folder(tmp_path):
    """Three parts with 2, 1 and 1 tensors."""
    tensors = {f"t{i}": (F32, (4,), bytes([i]) * 16) for i in range(4)}
    split = [["t0", "t1"], ["t2"], ["t3"]]
    for number, names in enumerate(split):
        head = {"general.architecture": "llama", "n": 7} if number == 0 else {}
        write(tmp_path / name(number + 1), head | split_keys(number, 3, 4), {n: tensors[n] for n in names})
    return tmp_path


@pytest.mark.parametrize("opened", [1, 2, 3])
@pytest.mark.parametrize("copy", [False, True])
def test_any_part_opens_the_whole_model(folder, opened, copy):
    with open_model(folder / name(opened), copy=copy) as model:
        assert isinstance(model, ShardedReader)
        assert model.metadata["general.architecture"] == "llama"
        assert [(t.name, t.shard) for t in model.tensors.values()] == [("t0", 0), ("t1", 0), ("t2", 1), ("t3", 2)]
        for i in range(4):
            assert bytes(model.data(f"t{i}")) == bytes([i]) * 16
        assert model.nbytes == sum(os.path.getsize(folder / name(i)) for i in (1, 2, 3))
        assert model.type_counts() == {F32: 4}
        assert model.name == str(folder / name(1))
        model.check_unchanged()
    assert open_files() == 0


def test_relative_and_bytes_paths(folder, monkeypatch):
    monkeypatch.chdir(folder)
    for path in (name(2), os.fsencode(name(2))):
        with open_model(path) as model:
            assert len(model.tensors) == 4


def test_a_file_that_is_not_split_is_one_reader(tmp_path):
    for keys in ({}, split_keys(0, 1, 0), {"split.count": 0}):
        path = tmp_path / "m-00001-of-00002.gguf"
        write(path, {"n": 1} | keys, {})
        with open_model(path) as model:
            assert isinstance(model, Reader)


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_missing_part_is_named_and_nothing_stays_open(folder, lost):
    (folder / name(lost)).unlink()
    opened = name(1 if lost > 1 else 2)
    with pytest.raises(ModelNotFoundError, match=rf"{opened}: .* missing: {name(lost)}$"):
        open_model(folder / opened)
    assert open_files() == 0


def test_a_huge_count_of_parts_is_cheap_and_listed_shortly(tmp_path):
    path = tmp_path / name(1, 60_000)
    write(path, split_keys(0, 60_000, 1), {})
    with pytest.raises(ModelNotFoundError, match=r"missing: m.*-00002-of-60000\.gguf.*, \.\.\.$") as caught:
        open_model(path)
    assert len(str(caught.value)) < 1000


def test_a_damaged_part_is_named_and_nothing_stays_open(folder):
    bad = folder / name(3)
    bad.write_bytes(bad.read_bytes()[:-17])  # the padding may go, the last byte of data may not
    with pytest.raises(ModelFormatError, match=rf"{name(3)}: file is"):
        open_model(folder / name(1))
    assert open_files() == 0


def test_a_renamed_part_says_which_name_it_needs(folder):
    (folder / name(2)).rename(folder / "other.gguf")
    with pytest.raises(ModelFormatError, match=r"part 2 of 3 .* names like model-00002-of-00003\.gguf"):
        open_model(folder / "other.gguf")


def test_parts_in_each_others_place_are_refused(folder):
    shutil.copy(folder / name(2), folder / name(3))
    with pytest.raises(ModelFormatError, match=rf"{name(3)}: expected part 3 of 3.*say part 2 of 3"):
        open_model(folder / name(1))
    with pytest.raises(ModelFormatError, match=r"the name says part 3 of 3.*say part 2 of 3"):
        open_model(folder / name(3))
    assert open_files() == 0


def test_a_part_without_split_keys_is_refused(folder):
    write(folder / name(2), {}, {})
    with pytest.raises(ModelFormatError, match=rf"{name(2)}: key 'split\.no' is missing"):
        open_model(folder / name(1))
    assert open_files() == 0


def test_a_tensor_in_two_parts_is_refused(folder):
    write(folder / name(3), split_keys(2, 3, 4), {"t1": (F32, (4,), bytes(16))})
    with pytest.raises(ModelFormatError, match=rf"{name(3)}: tensor 't1' is also in .*{name(1)}"):
        open_model(folder / name(1))
    assert open_files() == 0


def test_the_promised_number_of_tensors_is_checked(folder):
    write(folder / name(3), split_keys(2, 3, 4), {})
    with pytest.raises(ModelFormatError, match=r"'split\.tensors\.count' is 4, but the 3 parts have 3"):
        open_model(folder / name(2))


@pytest.mark.skipif(os.name == "nt", reason="Windows does not let a mapped file be shortened")
def test_a_change_of_any_part_is_noticed(folder):
    with open_model(folder / name(1)) as model:
        os.truncate(folder / name(3), 10)
        with pytest.raises(ModelFormatError, match=rf"{name(3)}: file was"):
            model.check_unchanged()
        assert bytes(model.data("t0")) == bytes(16)
