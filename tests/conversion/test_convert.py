"""Converting small models: weights, figures and vocabularies arrive where GGUF has them, and nothing else passes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from click.testing import CliRunner

import edgellm
from edgellm.cli import main
from edgellm.conversion.families import BERT, FAMILIES, NOMIC, Family
from edgellm.errors import ArgumentError, ModelFormatError, ModelNotFoundError, UnsupportedModelError
from edgellm.gguf import open_model
from tests.support import conformance

ENCODERS = Path(__file__).parents[1] / "data" / "encoders"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "##ing", "world", "!", "é"]
TOKENS = conformance.golden("_tokens", ENCODERS).tolist()
DTYPES: dict[str, npt.DTypeLike] = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16, "I64": np.int64}


def write_safetensors(path: Path, arrays: dict[str, npt.NDArray[Any]], kind: str = "F32") -> Path:
    """Write float32 arrays as tensors of one type."""
    header, body = {}, b""
    for name, array in arrays.items():
        if kind == "BF16":
            data = (array.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
        else:
            data = array.astype(DTYPES[kind]).tobytes()
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    head = json.dumps(header).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + body)
    return path


def weights(family: Family, recipe: conformance.Recipe) -> dict[str, npt.NDArray[np.float32]]:
    """Return a recipe's weights under the names that the family's own models have."""
    back = {target: source for source, target in family.tensors.items()}
    found = {}
    for name in recipe.tensors:
        stem, _, part = name.rpartition(".")
        number = stem.split(".")[1] if stem.startswith("blk.") else ""
        general = stem.replace(f"blk.{number}.", "blk.{i}.") if number else stem
        found[f"{back[general].replace('{i}', number)}.{part}"] = recipe.array(name)
    return found


CONFIGS: dict[str, dict[str, Any]] = {
    "bert": {
        "model_type": "bert",
        "hidden_size": 64,
        "intermediate_size": 96,
        "max_position_embeddings": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "layer_norm_eps": 1e-5,
    },
    "nomic-bert": {
        "model_type": "nomic_bert",
        "n_embd": 64,
        "n_inner": 96,
        "n_positions": 64,
        "n_head": 4,
        "n_layer": 2,
        "layer_norm_epsilon": 1e-5,
        "rotary_emb_base": 1000,
        "activation_function": "swiglu",
    },
}


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    """The folder of a small BERT."""
    return make(tmp_path / "small-bert", BERT)


def make(folder: Path, family: Family, *, kind: str = "F32", **config: Any) -> Path:
    """Write a folder as Hugging Face has it."""
    folder.mkdir()
    values = {**CONFIGS[family.architecture], **config}
    (folder / "config.json").write_text(json.dumps({k: v for k, v in values.items() if v is not None}))
    recipe = conformance.recipe(family.architecture, folder=ENCODERS)
    arrays = weights(family, recipe)
    write_safetensors(folder / "model.safetensors", {"pooler.dense.weight": np.ones((2, 2)), **arrays}, kind)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", "utf-8")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    return folder


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.architecture)
def test_a_converted_model_makes_the_vectors_of_the_reference(tmp_path: Path, family: Family) -> None:
    out = edgellm.convert(make(tmp_path / "m", family), tmp_path / "m.gguf", type="f32")
    expected = conformance.golden(family.architecture, ENCODERS)
    with edgellm.Model(out, kv_type="f32") as model:
        assert (model.info.architecture, model.info.pooling) == (family.architecture, "mean")
        assert conformance.nmse(model.embed_tokens(TOKENS), expected) < 1e-6


@pytest.mark.parametrize(("kind", "bound"), [("F16", 1e-5), ("BF16", 1e-3)])
def test_weights_may_be_stored_in_half_precision(tmp_path: Path, kind: str, bound: float) -> None:
    out = edgellm.convert(make(tmp_path / "m", BERT, kind=kind), tmp_path / "m.gguf", type="f32")
    with edgellm.Model(out, kv_type="f32") as model:
        assert conformance.nmse(model.embed_tokens(TOKENS), conformance.golden("bert", ENCODERS)) < bound


@pytest.mark.parametrize(("kind", "matrix"), [("f32", "F32"), ("f16", "F16"), ("q8_0", "Q8_0")])
def test_matrices_are_of_the_type_asked_for(bert: Path, tmp_path: Path, kind: Any, matrix: str) -> None:
    with open_model(edgellm.convert(bert, tmp_path / "m.gguf", type=kind)) as file:
        types = {name: tensor.dtype.name for name, tensor in file.tensors.items()}
    assert types["blk.0.attn_q.weight"] == types["token_embd.weight"] == matrix
    assert types["blk.0.attn_q.bias"] == types["token_types.weight"] == types["position_embd.weight"] == "F32"
    assert set(types) == set(conformance.recipe("bert", folder=ENCODERS).tensors)


def test_figures_and_vocabulary_are_those_of_the_folder(bert: Path, tmp_path: Path) -> None:
    with open_model(edgellm.convert(bert, tmp_path / "m.gguf")) as file:
        found = dict(file.metadata)
    expected = {
        "general.architecture": "bert",
        "general.name": "small-bert",
        "general.file_type": 1,
        "bert.context_length": 64,
        "bert.embedding_length": 64,
        "bert.feed_forward_length": 96,
        "bert.block_count": 2,
        "bert.attention.head_count": 4,
        "bert.attention.causal": False,
        "bert.pooling_type": 1,
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.token_type_count": 2,
        "tokenizer.ggml.cls_token_id": 2,
        "tokenizer.ggml.seperator_token_id": 3,
        "tokenizer.ggml.padding_token_id": 0,
    }
    assert {key: found[key] for key in expected} == expected
    tokens = list(found["tokenizer.ggml.tokens"])
    assert tokens[:10] == [*WORDS[:5], "▁hello", "ing", "▁world", "▁!", "▁é"]
    assert len(tokens) == 128
    assert list(found["tokenizer.ggml.token_type"])[:11] == [3, 3, 3, 3, 3, 1, 1, 1, 1, 1, 5]


def test_text_is_encoded_as_the_vocabulary_says(bert: Path, tmp_path: Path) -> None:
    tokenizer = edgellm.Tokenizer(edgellm.convert(bert, tmp_path / "m.gguf"))
    assert tokenizer.encode("Helloing WORLD!") == [2, 5, 6, 7, 8, 3]
    (bert / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    cased = edgellm.Tokenizer(edgellm.convert(bert, tmp_path / "m.gguf"))
    assert cased.encode("hello WORLD é") == [2, 5, 1, 9, 3]


def test_a_tokenizer_json_counts_before_a_vocab_txt(bert: Path, tmp_path: Path) -> None:
    words = [*WORDS[:5], "other"]
    normalizer = {"type": "BertNormalizer", "lowercase": True, "strip_accents": None}
    model = {"type": "WordPiece", "vocab": {word: i for i, word in enumerate(words)}}
    (bert / "tokenizer.json").write_text(json.dumps({"model": model, "normalizer": normalizer}))
    tokenizer = edgellm.Tokenizer(edgellm.convert(bert, tmp_path / "m.gguf"))
    assert tokenizer.encode("Other hello") == [2, 5, 1, 3]


def test_weights_may_lie_in_several_files_under_older_names(tmp_path: Path) -> None:
    folder = make(tmp_path / "m", BERT)
    recipe = conformance.recipe("bert", folder=ENCODERS)
    (folder / "model.safetensors").unlink()
    arrays = {
        f"bert.{name.replace('LayerNorm.weight', 'LayerNorm.gamma').replace('LayerNorm.bias', 'LayerNorm.beta')}": array
        for name, array in weights(BERT, recipe).items()
    }
    names = sorted(arrays)
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, mine in parts.items():
        write_safetensors(folder / file, {name: arrays[name] for name in mine})
    index = {"weight_map": {name: file for file, mine in parts.items() for name in mine}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with edgellm.Model(edgellm.convert(folder, tmp_path / "m.gguf", type="f32"), kv_type="f32") as model:
        assert conformance.nmse(model.embed_tokens(TOKENS), conformance.golden("bert", ENCODERS)) < 1e-6


def test_the_command_says_where_the_file_is(bert: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    done = CliRunner().invoke(main, ["convert", str(bert), "-o", str(out), "--type", "q8_0", "--name", "My BERT"])
    assert (done.exit_code, done.stdout) == (0, "")
    assert "out.gguf" in done.stderr
    with edgellm.Model(out) as model:
        assert (model.info.name, model.info.quantization) == ("My BERT", "Q8_0")
    failed = CliRunner().invoke(main, ["convert", str(tmp_path / "nothing"), "-o", str(out)])
    assert failed.exit_code == 1
    assert failed.stderr.startswith("error: there is no folder")


# What is refused


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"model_type": "t5"}, UnsupportedModelError, r"model_type = 't5' cannot be converted; bert, nomic_bert can"),
        ({"model_type": None}, UnsupportedModelError, "model_type = None"),
        ({"hidden_size": "64"}, ModelFormatError, "hidden_size = '64': must be a number"),
        ({"num_hidden_layers": None}, ModelFormatError, "num_hidden_layers = None"),
        ({"layer_norm_eps": True}, ModelFormatError, "layer_norm_eps"),
        (
            {"position_embedding_type": "relative_key"},
            UnsupportedModelError,
            "'relative_key'; bert files are of 'absolute'",
        ),
        ({"hidden_act": "relu"}, UnsupportedModelError, "hidden_act"),
    ],
)
def test_models_of_another_kind_are_refused(
    tmp_path: Path, change: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        edgellm.convert(make(tmp_path / "m", BERT, **change), tmp_path / "m.gguf")
    assert not (tmp_path / "m.gguf").exists()


def test_a_rotation_that_nomic_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="rotary_emb_interleaved = 'True'"):
        edgellm.convert(make(tmp_path / "m", NOMIC, rotary_emb_interleaved=True), tmp_path / "m.gguf")


@pytest.mark.parametrize(
    ("file", "content", "error", "message"),
    [
        ("config.json", None, ModelNotFoundError, "config.json"),
        ("config.json", b"{", ModelFormatError, "not JSON"),
        ("config.json", b"[]", ModelFormatError, "not a JSON object"),
        ("vocab.txt", None, ModelNotFoundError, "neither a tokenizer.json nor a vocab.txt"),
        ("vocab.txt", b"\xff\xfe", ModelFormatError, "not UTF-8"),
        ("vocab.txt", "\n".join(map(str, range(129))).encode(), ModelFormatError, "129 tokens, the embedding 128"),
        ("tokenizer.json", b'{"model": {"type": "BPE"}}', UnsupportedModelError, "type 'BPE' cannot be converted"),
        (
            "tokenizer.json",
            b'{"model": {"type": "WordPiece", "vocab": {"a": 1}}}',
            ModelFormatError,
            "number its tokens",
        ),
        (
            "tokenizer.json",
            b'{"model": {"vocab": {"a": 0}}, "normalizer": {"type": "NFC"}}',
            UnsupportedModelError,
            "NFC",
        ),
        ("1_Pooling/config.json", b'{"pooling_mode_max_tokens": true}', ModelFormatError, "pooling_mode_max_tokens"),
        ("1_Pooling/config.json", b"{}", ModelFormatError, "no mode"),
        ("model.safetensors", None, ModelNotFoundError, "no file .*model.safetensors"),
        ("model.safetensors", b"", ModelFormatError, "the header claims 0 bytes, the file has 0"),
        ("model.safetensors", (2**62).to_bytes(8, "little") + b"{}", ModelFormatError, "header claims"),
        ("model.safetensors", (2).to_bytes(8, "little") + b"{}", ModelFormatError, "no matrix of token embeddings"),
    ],
)
def test_folders_that_lack_or_spoil_a_file_are_refused(
    bert: Path, tmp_path: Path, file: str, content: bytes | None, error: type[Exception], message: str
) -> None:
    if content is None:
        (bert / file).unlink()
    else:
        (bert / file).write_bytes(content)
    with pytest.raises(error, match=message):
        edgellm.convert(bert, tmp_path / "m.gguf")
    assert not (tmp_path / "m.gguf").exists()


@pytest.mark.parametrize(
    ("entry", "error", "message"),
    [
        ({"dtype": "F32", "shape": [64, 128], "data_offsets": [0, 10]}, ModelFormatError, "is not at bytes"),
        ({"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 8]}, ModelFormatError, "is not at bytes"),
        ({"dtype": "F32", "shape": [2], "data_offsets": [2**40, 2**40 + 8]}, ModelFormatError, "is not at bytes"),
        ({"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}, ModelFormatError, "is not at bytes"),
        ({"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}, ModelFormatError, "no sound shape"),
        ({"dtype": "F32", "shape": [True], "data_offsets": [0, 8]}, ModelFormatError, "no sound shape"),
        ({"dtype": "F32", "shape": "2", "data_offsets": [0, 8]}, ModelFormatError, "no sound shape"),
        ({"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}, UnsupportedModelError, "F8_E4M3"),
        (7, ModelFormatError, "no sound shape"),
    ],
)
def test_headers_that_lie_are_refused(
    bert: Path, tmp_path: Path, entry: Any, error: type[Exception], message: str
) -> None:
    head = json.dumps({"embeddings.word_embeddings.weight": entry}).encode()
    (bert / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + bytes(64))
    with pytest.raises(error, match=message):
        edgellm.convert(bert, tmp_path / "m.gguf")


def test_a_weight_that_no_such_model_has_is_refused(bert: Path, tmp_path: Path) -> None:
    arrays = weights(BERT, conformance.recipe("bert", folder=ENCODERS)) | {
        "encoder.layer.0.extra.weight": np.ones((2, 2))
    }
    write_safetensors(bert / "model.safetensors", arrays)
    with pytest.raises(UnsupportedModelError, match=r"encoder\.layer\.0\.extra\.weight"):
        edgellm.convert(bert, tmp_path / "m.gguf")


def test_values_beyond_half_precision_need_f32(bert: Path, tmp_path: Path) -> None:
    arrays = weights(BERT, conformance.recipe("bert", folder=ENCODERS))
    arrays["encoder.layer.0.output.dense.weight"][0, 0] = 1e6
    write_safetensors(bert / "model.safetensors", arrays)
    with pytest.raises(ModelFormatError, match="convert with type f32"):
        edgellm.convert(bert, tmp_path / "m.gguf")
    assert edgellm.convert(bert, tmp_path / "m.gguf", type="f32").is_file()


def test_arguments_are_checked(bert: Path, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="type must be one of 'f32', 'f16', 'q8_0', not 'q4_0'"):
        edgellm.convert(bert, tmp_path / "m.gguf", type="q4_0")  # type: ignore[arg-type]
    for target in (tmp_path, tmp_path / "none" / "m.gguf"):
        with pytest.raises(ArgumentError, match="cannot be written"):
            edgellm.convert(bert, target)
