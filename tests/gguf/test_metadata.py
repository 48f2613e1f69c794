import struct
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from edgellm.errors import ModelFormatError
from edgellm.gguf import GGUFArray, Metadata, Reader, ValueType

from . import lying

SCALARS = {
    ValueType.UINT8: ("<B", 200),
    ValueType.INT8: ("<b", -100),
    ValueType.UINT16: ("<H", 60_000),
    ValueType.INT16: ("<h", -30_000),
    ValueType.UINT32: ("<I", 4_000_000_000),
    ValueType.INT32: ("<i", -2_000_000_000),
    ValueType.FLOAT32: ("<f", 0.5),
    ValueType.BOOL: ("<?", True),
    ValueType.UINT64: ("<Q", (1 << 64) - 1),
    ValueType.INT64: ("<q", -(1 << 63)),
    ValueType.FLOAT64: ("<d", 0.1),
}
GETTERS = {"get_int": int, "get_float": float, "get_bool": bool, "get_str": str, "get_array": GGUFArray}


def value_bytes(kind: ValueType) -> bytes:
    if kind is ValueType.STRING:
        return lying.string("text")
    if kind is ValueType.ARRAY:
        return struct.pack("<IQ2I", ValueType.UINT32, 2, 5, 6)
    code, value = SCALARS[kind]
    return struct.pack(code, value)


def load(*pairs: bytes) -> Metadata:
    return Reader.from_buffer(lying.gguf(pairs), "m.gguf").metadata


def test_it_is_a_mapping_in_file_order():
    metadata = load(lying.u32("b", 1), lying.text("a", "ü"), lying.u32("c", 3))
    assert isinstance(metadata, Mapping)
    assert dict(metadata) == {"b": 1, "a": "ü", "c": 3}
    assert list(metadata) == ["b", "a", "c"]
    assert "a" in metadata
    assert "z" not in metadata
    assert metadata.get("z", 5) == 5
    with pytest.raises(KeyError):
        metadata["z"]


@pytest.mark.parametrize("kind", SCALARS)
def test_scalars_of_every_type(kind):
    value = SCALARS[kind][1]
    metadata = load(lying.pair("k", kind, value_bytes(kind)), lying.u32("after", 7))
    assert metadata["k"] == value
    assert type(metadata["k"]) is type(value)
    assert metadata["after"] == 7
    assert metadata.type_of("k") is kind


@pytest.mark.parametrize("kind", SCALARS)
def test_arrays_of_every_numeric_type(kind):
    code, value = SCALARS[kind]
    array = load(lying.array("k", kind, 3, struct.pack(code, value) * 2 + bytes(struct.calcsize(code))))["k"]
    assert isinstance(array, Sequence)
    assert array.tolist() == [value, value, 0]
    assert list(array) == array.tolist()
    assert type(array[0]) is type(value)
    assert (len(array), array[-1], array[1:], array[::2]) == (3, 0, [value, 0], [value, 0])
    assert array.numpy().dtype == np.dtype(code)
    assert not array.numpy().flags.writeable
    assert array.numpy().flags.aligned
    with pytest.raises(IndexError):
        array[3]
    with pytest.raises(ModelFormatError, match="not of strings"):
        array.bytes_list()


def test_arrays_of_strings():
    words = ["", "a", "ü" * 40, "x" * 70_000, "\0\0\0\0\0\0\0\0", "b"]
    metadata = load(lying.strings("k", words), lying.u32("after", 7))
    array = metadata["k"]
    assert array.is_string
    assert array.tolist() == words
    assert list(array) == words
    assert (len(array), array[1], array[-1], array[1:3]) == (6, "a", "b", words[1:3])
    assert array.bytes_list() == [word.encode() for word in words]
    assert metadata["after"] == 7
    with pytest.raises(IndexError):
        array[-7]
    with pytest.raises(ModelFormatError, match="array of strings"):
        array.numpy()


@pytest.mark.parametrize("kind", [ValueType.STRING, ValueType.INT32])
def test_empty_arrays(kind):
    array = load(lying.array("k", kind, 0, b""), lying.u32("after", 7))["k"]
    assert (len(array), array.tolist(), array.type) == (0, [], kind)


def test_wrong_utf8_is_an_error_on_access_only():
    metadata = load(lying.text("t", b"\xff"), lying.strings("s", ["ok", b"a\xc3"]))
    with pytest.raises(ModelFormatError, match=r"m\.gguf: key 't' is not valid UTF-8"):
        metadata["t"]
    with pytest.raises(ModelFormatError, match="key 't'"):
        metadata.get_str("t")
    for read in (lambda a: a.tolist(), lambda a: a[1], list):
        with pytest.raises(ModelFormatError, match=r"m\.gguf: key 's': string 1 is not valid UTF-8"):
            read(metadata["s"])
    assert metadata["s"][0] == "ok"
    assert metadata["s"].bytes_list() == [b"ok", b"a\xc3"]


def test_values_outlive_the_reader(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(lying.small())
    with Reader(path) as reader:
        metadata = reader.metadata
    path.unlink()
    assert metadata["tokenizer.ggml.tokens"].tolist() == ["<s>", "", "a", "ü", "x" * 300]
    assert metadata["tokenizer.ggml.scores"].numpy().tolist() == [0, -1, -2.5]
    assert metadata["general.architecture"] == "llama"


@pytest.mark.parametrize(
    "key", ["general.file_type", "general.architecture", "tokenizer.chat_template", "x.head_count"]
)
@pytest.mark.parametrize("kind", list(ValueType))
def test_every_getter_gives_its_type_or_our_error(key, kind):
    metadata = load(lying.pair(key, kind, value_bytes(kind)))
    served = {
        ValueType.STRING: {"get_str"},
        ValueType.ARRAY: {"get_array"},
        ValueType.BOOL: {"get_bool"},
        ValueType.FLOAT32: {"get_float"},
        ValueType.FLOAT64: {"get_float"},
    }.get(kind, {"get_int", "get_float"})
    found = "an array of 2 x uint32" if kind is ValueType.ARRAY else str(kind)
    for getter, wanted in GETTERS.items():
        if getter in served:
            assert type(getattr(metadata, getter)(key)) is wanted
        else:
            with pytest.raises(ModelFormatError, match=rf"m\.gguf: key '{key}' is {found}; an? .* is needed"):
                getattr(metadata, getter)(key)


def test_missing_keys_need_a_default():
    metadata = load(lying.u32("n", 1))
    for getter in GETTERS:
        with pytest.raises(ModelFormatError, match=r"m\.gguf: key 'llama\.x' is missing"):
            getattr(metadata, getter)("llama.x")
        assert getattr(metadata, getter)("llama.x", default=None) is None
    assert metadata.get_float("llama.x", 3) == 3
    assert metadata.get_int("n", None) == 1


def test_the_default_does_not_hide_a_wrong_type():
    with pytest.raises(ModelFormatError, match="is string; an integer"):
        load(lying.text("n", "7")).get_int("n", 7)


@pytest.mark.parametrize(
    ("of", "kinds"),
    [
        (int, {kind for kind in SCALARS if "INT" in kind.name}),
        (float, {ValueType.FLOAT32, ValueType.FLOAT64}),
        (bool, {ValueType.BOOL}),
        (str, {ValueType.STRING}),
    ],
)
def test_arrays_are_checked_for_their_elements(of, kinds):
    for kind in [*SCALARS, ValueType.STRING]:
        metadata = load(lying.array("tokenizer.ggml.tokens", kind, 0, b""))
        if kind in kinds:
            assert metadata.get_array("tokenizer.ggml.tokens", of).type is kind
        else:
            with pytest.raises(ModelFormatError, match=rf"array of 0 x {kind}; an array of {of.__name__}"):
                metadata.get_array("tokenizer.ggml.tokens", of)


def test_special_ids_keep_their_sign_and_width():
    metadata = load(
        lying.u32("tokenizer.ggml.eos_token_id", 4294967295),
        lying.pair("tokenizer.ggml.unknown_token_id", ValueType.INT32, struct.pack("<i", -1)),
    )
    assert metadata.get_int("tokenizer.ggml.eos_token_id") == 4294967295
    assert metadata.get_int("tokenizer.ggml.unknown_token_id") == -1


@pytest.mark.parametrize("kind", [ValueType.UINT32, ValueType.INT64, ValueType.INT32])
def test_vocabulary_arrays_keep_their_own_lengths(kind):
    code = SCALARS[kind][0]
    metadata = load(
        lying.strings("tokenizer.ggml.tokens", [f"t{i}" for i in range(300)]),
        lying.array("tokenizer.ggml.scores", ValueType.FLOAT32, 299, bytes(4 * 299)),
        lying.array("tokenizer.ggml.token_type", kind, 300, struct.pack(code, 3) * 300),
    )
    assert len(metadata.get_array("tokenizer.ggml.tokens", str)) == 300
    assert len(metadata.get_array("tokenizer.ggml.scores", float)) == 299
    assert metadata.get_array("tokenizer.ggml.token_type", int).tolist() == [3] * 300


def test_hyper_parameters_may_be_scalars_or_arrays():
    metadata = load(
        lying.array("llama.attention.head_count", ValueType.INT32, 2, struct.pack("<2i", 8, 0)),
        lying.u32("llama.block_count", 0),
    )
    assert metadata.get_int("llama.block_count") == 0
    assert metadata.get_array("llama.attention.head_count", int).tolist() == [8, 0]
    with pytest.raises(ModelFormatError, match=r"head_count' is an array of 2 x int32; an integer"):
        metadata.get_int("llama.attention.head_count")


def test_long_and_odd_keys_are_shortened_in_messages():
    message = ""
    try:
        load().get_int("k" * 5000 + "\x1b[2J")
    except ModelFormatError as error:
        message = str(error)
    assert "(5004 characters) is missing" in message
    assert len(message) < 250


def test_repr_does_not_list_the_contents():
    metadata = load(lying.strings("k", ["a"] * 1000))
    assert repr(metadata) == "<Metadata of m.gguf: 1 keys>"
    assert repr(metadata["k"]) == "<GGUFArray of 1000 x string>"
