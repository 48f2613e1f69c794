"""What every backend's Executable must do, on small models of two families."""

import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgellm.architectures import build
from edgellm.backends.base import PAGE, Backend, Batch, CompileOptions, Executable, KVType, Segment
from edgellm.errors import ArgumentError, CancelledError, ClosedError, UnsupportedModelError
from edgellm.program import Program
from tests.support import conformance
from tests.support.conformance import nmse
from tests.support.plain import plain_llama
from tests.support.run import options_for, run_tokens

FAMILIES = ("llama-dense", "gemma3-dense", "smollm3-dense")
TOKENS = conformance.tokens()
CLOSE = 1e-9
"""Bound of the squared error where stored keys have been rounded once more, or summed in another order."""


class Model:
    """A compiled conformance model with plenty of pages."""

    def __init__(
        self,
        name: str,
        backend: Backend,
        *,
        n_pages: int = 12,
        kv_type: KVType = "f32",
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        recipe = conformance.recipe(name, lean=True)
        self.program: Program = build(recipe.metadata | dict(metadata or {}), recipe.tensors)
        given = CompileOptions((n_pages,) * len(self.program.windows), 300, kv_type)
        self.executable: Executable = backend.compile(self.program, recipe.weights(), given)

    def segment(self, start: int, n_rows: int, pages: list[int]) -> Segment:
        return Segment(start, n_rows, [np.asarray(pages, np.int32)] * len(self.program.windows))

    def step(
        self, tokens: npt.NDArray[np.int32], *segments: Segment, wanted: list[int] | None = None
    ) -> npt.NDArray[np.float32]:
        rows = np.arange(len(tokens)) if wanted is None else np.asarray(wanted)
        return self.executable.step(Batch(tokens, segments, rows.astype(np.int32)))

    def groups(self) -> range:
        return range(len(self.program.windows))


@pytest.fixture(params=FAMILIES)
def model(request: pytest.FixtureRequest, backend: Backend) -> Model:
    return Model(request.param, backend)


@pytest.mark.parametrize("chunk", [1, 7, 16, 33])
def test_chunks_of_a_prompt_give_the_logits_of_the_whole(model: Model, chunk: int) -> None:
    whole = run_tokens(model.executable, model.program, TOKENS)
    assert nmse(run_tokens(model.executable, model.program, TOKENS, chunk), whole) < 1e-13


def test_pages_may_lie_anywhere(model: Model) -> None:
    expected = run_tokens(model.executable, model.program, TOKENS)
    found = model.step(TOKENS, model.segment(0, 40, [11, 3, 7]))
    np.testing.assert_array_equal(found, expected)


def test_neighbours_in_a_step_do_not_matter(model: Model) -> None:
    first, second = TOKENS[:20], TOKENS[10:40]
    alone_1 = model.step(first, model.segment(0, 20, [0, 1]))
    alone_2 = model.step(second, model.segment(0, 30, [2, 3]))
    model.step(second[:12], model.segment(0, 12, [4]))
    both = model.step(np.concatenate([first, second[12:]]), model.segment(0, 20, [6, 7]), model.segment(12, 18, [4, 5]))
    assert nmse(both[:20], alone_1) < 1e-13
    assert nmse(both[20:], alone_2[12:]) < 1e-13


def test_only_wanted_rows_come_back(model: Model) -> None:
    everything = model.step(TOKENS, model.segment(0, 40, [0, 1, 2]))
    some = model.step(TOKENS, model.segment(0, 40, [0, 1, 2]), wanted=[3, 39])
    assert nmse(some, everything[[3, 39]]) < 1e-13
    none = model.step(TOKENS[:16], model.segment(0, 16, [3]), wanted=[])
    assert none.shape == (0, model.program.n_vocab)
    rest = model.step(TOKENS[16:], model.segment(16, 24, [3, 4, 5]))
    assert nmse(rest, everything[16:]) < 1e-13


def test_a_copied_page_carries_a_sequence_on(model: Model) -> None:
    expected = model.step(TOKENS, model.segment(0, 40, [0, 1, 2]))[20:]
    for group in model.groups():
        model.executable.copy_pages(group, [(0, 8), (1, 9)])
    model.step(TOKENS[::-1].copy(), model.segment(0, 40, [0, 1, 2]))
    found = model.step(TOKENS[20:], model.segment(20, 20, [8, 9, 10]))
    assert nmse(found, expected) < 1e-13


@pytest.mark.parametrize("name", ["llama-dense", "qwen2-dense", "gemma3-dense"])
def test_keys_can_be_moved_to_other_positions(name: str, backend: Backend) -> None:
    # In a model of one layer keys depend on nothing but their token and position.
    family = name.removesuffix("-dense")
    keys = {f"{family}.block_count": 1, f"{family}.attention.sliding_window_pattern": [1]}
    model = Model(name, backend, metadata=keys)
    filler, there, moved, rest = 5, 0, 2, 3
    model.step(TOKENS[24:], model.segment(0, 16, [filler]))
    model.step(TOKENS[:16], model.segment(32, 16, [filler, filler, there]))
    expected = model.step(TOKENS[16:20], model.segment(48, 4, [filler, filler, there, rest]))
    model.step(TOKENS[:16], model.segment(0, 16, [moved]))
    unmoved = model.step(TOKENS[16:20], model.segment(48, 4, [filler, filler, moved, rest]))
    for group in model.groups():
        model.executable.rotate_keys(group, [moved], 32)
    found = model.step(TOKENS[16:20], model.segment(48, 4, [filler, filler, moved, rest]))
    assert nmse(found, expected) < CLOSE
    assert nmse(unmoved, expected) > 1e-6
    for group in model.groups():
        model.executable.rotate_keys(group, [moved], -32)
    back = model.step(TOKENS[16:20], model.segment(16, 4, [moved, rest]))
    assert nmse(back, model.step(TOKENS[:20], model.segment(0, 20, [there, rest]))[16:]) < CLOSE


def test_moving_keys_does_not_scale_them_again(backend: Backend) -> None:
    recipe = conformance.recipe("qwen2-dense", lean=True)
    scaling = {"type": "yarn", "factor": 4.0, "original_context_length": 64}
    metadata = recipe.metadata | {f"qwen2.rope.scaling.{key}": value for key, value in scaling.items()}
    program = build(metadata, recipe.tensors)
    executable = backend.compile(program, recipe.weights(), options_for(program, 64))
    before = run_tokens(executable, program, TOKENS[:20])
    executable.rotate_keys(0, [0], 1000)
    executable.rotate_keys(0, [0], -1000)
    table = [np.arange(2, dtype=np.int32)]
    after = executable.step(Batch(TOKENS[16:20], [Segment(16, 4, table)], np.arange(4, dtype=np.int32)))
    assert nmse(after, before[16:]) < CLOSE


def test_a_page_that_a_row_can_see_must_be_there(model: Model) -> None:
    expected = model.step(TOKENS, model.segment(0, 40, [0, 1, 2]))[36:]
    for pages in ([0, -1, 2], [0, 1, -1], [0, 1], [0, 1, 12], [0, 1, -2]):
        with pytest.raises(ArgumentError):
            model.step(TOKENS[36:], model.segment(36, 4, pages))
    assert nmse(model.step(TOKENS[36:], model.segment(36, 4, [0, 1, 2])), expected) < 1e-13


def test_pages_before_the_window_may_be_gone(backend: Backend) -> None:
    model = Model("gemma3-dense", backend)
    assert model.program.windows == (None, 32)
    tokens = np.concatenate([TOKENS, TOKENS[::-1]])
    full = np.arange(5, dtype=np.int32)
    model.step(tokens[:60], Segment(0, 60, [full[:4], full[:4]]), wanted=[])
    # Position 60 sees 29 and later in the window: the page of 0..15 can go, that of 16..31 cannot.
    expected = model.step(tokens[60:61], Segment(60, 1, [full[:4], full[:4]]))
    gone = np.array([-1, 1, 2, 3], np.int32)
    np.testing.assert_array_equal(model.step(tokens[60:61], Segment(60, 1, [full[:4], gone])), expected)
    too_much = np.array([-1, -1, 2, 3], np.int32)
    with pytest.raises(ArgumentError):
        model.step(tokens[60:61], Segment(60, 1, [full[:4], too_much]))


def test_half_precision_keys_are_close_but_not_the_same(backend: Backend) -> None:
    exact = Model("qwen2-dense", backend)
    half = Model("qwen2-dense", backend, kv_type="f16")
    found, expected = (run_tokens(m.executable, m.program, TOKENS) for m in (half, exact))
    assert 0.0 < nmse(found, expected) < 1e-5


@pytest.mark.parametrize("factors", [None, 8.0, "random"])
def test_rope_factors_act_as_a_plain_implementation_says(factors: float | str | None, backend: Backend) -> None:
    # Short prompts hardly show the low bands: the last query is 4000 positions away from its keys.
    recipe = conformance.recipe("llama-dense", lean=True)
    arrays = {name: recipe.array(name) for name in recipe.tensors}
    divisors = np.ones(64, np.float32)
    if factors == 8.0:
        divisors[32:] = 8.0
    elif factors == "random":
        divisors = 1.0 + np.abs(arrays["rope_freqs.weight"])
    arrays["rope_freqs.weight"] = divisors
    tensors = {name: recipe.tensors[name] for name in arrays if factors or name != "rope_freqs.weight"}
    program = build(recipe.metadata, tensors)
    weights = {name: conformance.as_weight(arrays[name]) for name in tensors}
    executable = backend.compile(program, weights, CompileOptions((2,), 16, "f32"))

    # Nothing forbids a table to give one page to many blocks, which spares this test 3984 tokens.
    table = np.zeros(4000 // PAGE + 1, np.int32)
    table[-1] = 1
    near = executable.step(Batch(TOKENS[:16], [Segment(0, 16, [table[:1]])], np.arange(16, dtype=np.int32)))
    far = executable.step(Batch(TOKENS[16:17], [Segment(4000, 1, [table])], np.zeros(1, np.int32)))

    positions = np.array([*range(16), 4000])
    frequency = 10000.0 ** (-np.arange(64) / 64.0) / divisors
    copies = np.tril(np.ones((17, 17)))
    copies[16, :16] = 4000 // PAGE
    model: dict[str, Any] = {"n_layer": 2, "n_head": 2, "copies": copies, "eps": 1e-5}
    expected = plain_llama(arrays, TOKENS[:17], positions, frequency=frequency, **model)
    found = np.concatenate([near, far]).astype(np.float64)
    assert np.sum((found - expected) ** 2) / np.sum(expected**2) < CLOSE
    if factors is not None:
        plain = 10000.0 ** (-np.arange(64) / 64.0)
        other = plain_llama(arrays, TOKENS[:17], positions, frequency=plain, **model)
        assert np.sum((far - other[16:]) ** 2) / np.sum(other[16:] ** 2) > 1e-6


def test_equal_rope_factors_act_like_linear_scaling(backend: Backend) -> None:
    recipe = conformance.recipe("llama-dense", lean=True)
    weights = recipe.weights() | {"rope_freqs.weight": conformance.as_weight(np.full(64, 4.0, np.float32))}
    by_factors = build(recipe.metadata, recipe.tensors)
    by_scaling = build(
        recipe.metadata | {"llama.rope.scaling.factor": 4.0},
        {name: shape for name, shape in recipe.tensors.items() if name != "rope_freqs.weight"},
    )
    logits = [
        run_tokens(backend.compile(program, weights, options_for(program, 40)), program, TOKENS)
        for program in (by_factors, by_scaling)
    ]
    assert nmse(logits[0], logits[1]) < 1e-10


def test_queries_sharpen_with_distance_where_the_file_asks(backend: Backend) -> None:
    recipe = conformance.recipe("mistral3-dense", lean=True)
    keys = {"attention.temperature_scale": 0.5, "rope.scaling.original_context_length": 16}
    program = build(recipe.metadata | {f"mistral3.{k}": v for k, v in keys.items()}, recipe.tensors)
    try:
        executable = backend.compile(program, recipe.weights(), options_for(program, 40))
    except UnsupportedModelError as error:
        pytest.skip(str(error))
    found, plain = run_tokens(executable, program, TOKENS), conformance.golden("mistral3-dense")
    assert nmse(found[:16], plain[:16]) < 1e-8
    assert nmse(found[16:], plain[16:]) > 1e-6


def test_cancel_ends_the_running_step_and_only_that(backend: Backend) -> None:
    model = Model("llama-dense", backend, n_pages=20)
    tokens = np.resize(TOKENS, 300)
    expected = run_tokens(model.executable, model.program, tokens)
    cancelled = threading.Event()

    def work() -> None:
        while not cancelled.is_set():
            try:
                run_tokens(model.executable, model.program, tokens)
            except CancelledError:
                cancelled.set()

    thread = threading.Thread(target=work)
    thread.start()
    deadline = time.monotonic() + 60.0
    while not cancelled.is_set() and time.monotonic() < deadline:
        model.executable.cancel()
        time.sleep(0.0005)
    was_cancelled = cancelled.is_set()
    cancelled.set()
    thread.join()
    assert was_cancelled
    np.testing.assert_array_equal(run_tokens(model.executable, model.program, tokens), expected)


def test_a_closed_executable_refuses_everything_but_closing(model: Model) -> None:
    model.executable.close()
    model.executable.close()
    with pytest.raises(ClosedError):
        model.step(TOKENS[:4], model.segment(0, 4, [0]))
    with pytest.raises(ClosedError):
        model.executable.copy_pages(0, [(0, 1)])
    with pytest.raises(ClosedError):
        model.executable.rotate_keys(0, [0], 1)
