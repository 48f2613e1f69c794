import gguf
import pytest

from edgellm import dtypes
from edgellm.errors import ArgumentError, UnsupportedModelError


def test_every_type_of_gguf_py_has_the_same_name_and_size():
    sizes = dict(gguf.GGML_QUANT_SIZES)
    # gguf-py still gives this block two 32-bit floats; ggml's struct has two 16-bit ones.
    sizes.pop(gguf.GGMLQuantizationType.Q8_1)
    ours = {t.id: (t.name, t.block, t.nbytes) for t in dtypes.DTYPES}
    assert {int(k): ours[k] for k in sizes} == {int(k): (k.name, *v) for k, v in sizes.items()}


def test_types_gguf_py_lacks_or_gets_wrong():
    q8_1 = dtypes.by_name("Q8_1")
    assert (q8_1.id, q8_1.block, q8_1.nbytes) == (9, 32, 2 * 2 + 32)
    q2_0 = dtypes.by_id(42)
    assert (q2_0.name, q2_0.block, q2_0.nbytes) == ("Q2_0", 64, 2 + 64 * 2 // 8)


def test_ids_from_0_to_42_are_each_a_type_or_a_removed_one():
    ids = [t.id for t in dtypes.DTYPES] + list(dtypes.REMOVED)
    assert sorted(ids) == list(range(43))
    names = [t.name for t in dtypes.DTYPES] + list(dtypes.REMOVED.values())
    assert len(set(names)) == len(names)


def test_row_bytes_counts_whole_blocks():
    assert dtypes.by_name("Q4_K").row_bytes(512) == 288
    assert dtypes.by_name("q8_0").row_bytes(0) == 0
    assert dtypes.by_name("F16").row_bytes(3) == 6
    for n in (-32, 1, 40):
        with pytest.raises(ArgumentError, match=rf"{n} elements.*Q8_0 blocks of 32"):
            dtypes.by_name("Q8_0").row_bytes(n)


def test_removed_and_unknown_ids_are_refused_by_name():
    with pytest.raises(UnsupportedModelError, match=r"31 \(Q4_0_4_4, removed"):
        dtypes.by_id(31)
    with pytest.raises(UnsupportedModelError, match=r"43 \(unknown\)"):
        dtypes.by_id(43)
    with pytest.raises(ArgumentError, match="'Q4_2'"):
        dtypes.by_name("Q4_2")
