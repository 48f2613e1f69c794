"""What `Model` and its methods accept, and what `Model.info` tells."""

from __future__ import annotations

import logging
import threading

import numpy as np
import pytest

import edgellm
from edgellm.engine.machine import default_threads
from tests.model.conftest import CHAT, ids_of, prompt
from tests.support.native import available


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_ctx": -1},
        {"n_ctx": 1.5},
        {"n_ctx": "8"},
        {"n_ctx": True},
        {"n_batch": 0},
        {"n_batch": -1},
        {"threads": 0},
        {"threads": -1},
        {"threads": 10_000},
        {"backend": "cuda"},
        {"kv_type": "q3"},
        {"overflow": "wrap"},
        {"max_memory": "lots"},
    ],
)
def test_arguments_of_the_model_are_checked_by_name(files, wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(edgellm.ArgumentError, match=name) as caught:
        edgellm.Model(files["ids"], **{"backend": "reference", **wrong})
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize(("n_ctx", "expected"), [(None, 256), (0, 256), (1, 1), (2, 2), (100, 100)])
def test_n_ctx(files, n_ctx, expected):
    with edgellm.Model(files["ids"], backend="reference", n_ctx=n_ctx) as m:
        assert m.info.n_ctx == expected
        generation = m.generate([5], temperature=0)
        assert len(ids_of(generation)) == expected - 1
        assert generation.finish_reason == "length"


def test_n_ctx_ends_at_the_trained_length(files, caplog):
    with caplog.at_level(logging.WARNING, "edgellm"), edgellm.Model(files["ids"], backend="reference", n_ctx=999) as m:
        assert m.info.n_ctx == 256
    assert "999" in caplog.text


def test_a_batch_of_one_and_more_threads_than_cores_change_nothing(files, ids_model):
    expected = ids_of(ids_model.generate(prompt(20), max_tokens=5, temperature=0))
    for arguments in ({"n_batch": 1}, {"threads": 64}):
        with edgellm.Model(files["ids"], backend="reference", **arguments) as m:
            assert ids_of(m.generate(prompt(20), max_tokens=5, temperature=0)) == expected


@pytest.mark.parametrize("backend", ["reference", "native", "numba"])
def test_threads_may_change_in_the_middle_of_a_text(files, backend):
    if backend == "native" and not available():
        pytest.skip("edgellm._native is not built")
    with edgellm.Model(files["windows"], backend=backend, threads=1, n_batch=8) as m:
        tokens = prompt(40)
        expected, logits = ids_of(m.generate(tokens, max_tokens=12, temperature=0)), m.logits(tokens)
        assert (m.threads, m.info.threads) == (1, 1)
        wanted = [3, 64, 1, 2, 1000, 1, 5]

        def change(ids, logits):  # Runs between two steps, in the engine's thread.
            if wanted:
                m.threads = wanted.pop(0)

        assert ids_of(m.generate(tokens, max_tokens=12, temperature=0, logits_processors=[change])) == expected
        assert (wanted, m.threads, m.info.threads) == ([], 5, 5)
        setting = threading.Thread(target=setattr, args=(m, "threads", 4))
        setting.start()
        setting.join()
        assert m.threads == 4
        np.testing.assert_array_equal(m.logits(tokens), logits)
        m.threads = None
        assert m.threads == default_threads()


@pytest.mark.parametrize("wrong", [0, -1, 10_000, 1.5, "2", True])
def test_threads_that_cannot_be_are_refused_and_the_model_goes_on(files, wrong):
    with edgellm.Model(files["ids"], backend="reference", threads=2) as m:
        with pytest.raises(edgellm.ArgumentError, match="threads") as caught:
            m.threads = wrong
        assert repr(wrong) in str(caught.value)
        assert m.threads == 2
    with pytest.raises(edgellm.ClosedError):
        m.threads = 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_tokens": -2},
        {"max_tokens": 1.0},
        {"stop": ""},
        {"stop": [""]},
        {"stop": [1]},
        {"stop": 5},
        {"stop": ["x"] * 65},
        {"temperature": float("nan")},
        {"top_p": 1.5},
        {"seed": -2},
        {"top_k": True},
        {"logit_bias": {10**6: 1.0}},
    ],
)
@pytest.mark.parametrize("method", ["generate", "chat"])
def test_arguments_of_a_request_are_checked_by_name(model, method, wrong):
    call = {"generate": lambda **k: model.generate("hello", **k), "chat": lambda **k: model.chat(CHAT, **k)}[method]
    with pytest.raises(edgellm.ArgumentError, match=next(iter(wrong))):
        call(**wrong)


@pytest.mark.parametrize("call", ["Model", "generate", "chat"])
def test_unknown_keywords_are_type_errors(files, model, call):
    calls = {
        "Model": lambda: edgellm.Model(files["ids"], n_threads=2),
        "generate": lambda: model.generate("hello", max_new_tokens=2),
        "chat": lambda: model.chat(CHAT, temprature=2),
    }
    with pytest.raises(TypeError):
        calls[call]()


@pytest.mark.parametrize("value", [b"bytes", 5, [1.5], ["a"], [[1]], None, {"a": 1}])
def test_a_prompt_is_text_or_ids(model, value):
    with pytest.raises(edgellm.ArgumentError, match="prompt"):
        model.generate(value)


@pytest.mark.parametrize("bad", [-1, 128, 10**12])
def test_ids_outside_of_the_vocabulary_are_refused(ids_model, bad):
    for call in (ids_model.generate, ids_model.logits):
        with pytest.raises(edgellm.VocabularyError, match=str(bad)):
            call([1, bad])


@pytest.mark.parametrize("value", [5, None, 1.5, b"x"])
def test_a_model_is_a_path_or_a_name(value):
    with pytest.raises(edgellm.ArgumentError, match="model"):
        edgellm.Model(value)


def test_info_tells_what_the_file_is_and_how_it_runs(files, model, tmp_path):
    info = model.info
    assert (info.architecture, info.licence, info.quantization) == ("llama", "apache-2.0", "F32")
    assert (info.n_embd, info.n_layer, info.n_head, info.n_head_kv, info.n_ff) == (256, 2, 2, 2, 384)
    assert (info.n_ctx, info.n_ctx_train, info.kv_bytes_per_token) == (256, 256, 2 * 2 * 256 * 2)
    assert (info.backend, info.kv_type, info.has_tokenizer, info.has_chat_template) == ("reference", "f16", True, True)
    assert info.file_bytes == files["bos"].stat().st_size
    assert info.n_vocab == model.tokenizer.n_vocab
    assert sum(info.tensor_types.values()) == 64
    lie = tmp_path / "x-IQ4_XS.gguf"
    lie.write_bytes(files["ids"].read_bytes())
    with edgellm.Model(lie, backend="reference") as m:
        assert m.info.quantization == "F32"
        assert not m.info.has_chat_template


def test_max_memory_is_kept_or_refused(files):
    with edgellm.Model(files["ids"], backend="reference", max_memory="1GB") as m:
        assert m.info.memory.total < 10**9
        whole = m.info.memory
    with edgellm.Model(files["ids"], backend="reference", max_memory=whole.total - whole.scratch // 2) as m:
        assert m.info.n_batch < 512
    with pytest.raises(edgellm.OutOfMemoryError, match="max_memory"):
        edgellm.Model(files["ids"], backend="reference", max_memory=1000)
