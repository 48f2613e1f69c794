"""Models with recurrent layers: their logits against llama.cpp's, and the states that carry them on."""

import numpy as np
import numpy.typing as npt
import pytest

from edgellm.architectures import build
from edgellm.backends import get_backend
from edgellm.backends.base import PAGE, Batch, CompileOptions, Executable, Segment
from edgellm.errors import ArgumentError, ModelFormatError
from edgellm.program import Program
from edgellm.program.verify import verify
from tests.support import conformance
from tests.support.conformance import N_TOKENS, SHARED, nmse
from tests.support.native import available
from tests.support.run import options_for, run_tokens

NAMES = (
    "falcon-h1-dense",
    "granitehybrid-dense",
    "jamba-dense",
    "kimi-linear-moe",
    "lfm2-dense",
    "lfm2moe-moe",
    "mamba-dense",
    "mamba2-dense",
    "nemotron_h-dense",
    "nemotron_h_moe-dense",
    "plamo2-dense",
    "qwen35-dense",
    "qwen35moe-moe",
    "qwen3next-moe",
)
KINDS = ("jamba-dense", "kimi-linear-moe", "lfm2-dense", "mamba2-dense", "qwen35-dense")
"""One for each kind of recurrent layer."""
TOKENS = np.random.default_rng(5).integers(0, 128, 60).astype(np.int32)

pytestmark = pytest.mark.usefixtures("shared_recipes")


@pytest.fixture(scope="module")
def shared_recipes() -> None:
    """The recipes of all architectures."""
    conformance.need_shared()


@pytest.fixture(params=["reference", "native"])
def backend(request: pytest.FixtureRequest) -> str:
    """The backends that have recurrent ops."""
    if request.param == "native" and not available():
        pytest.skip("edgellm._native is not built")
    name: str = request.param
    return name


class Compiled:
    """A model with room for `n_slots` sequences of 60 tokens, which use the pages 4 * slot, 4 * slot + 1, …"""

    def __init__(self, name: str, backend: str, n_slots: int = 3, threads: int = 1) -> None:
        recipe = conformance.recipe(name, lean=True, folder=SHARED)
        self.program: Program = build(recipe.metadata, recipe.tensors)
        pages = (4 * n_slots,) * len(self.program.windows)
        options = CompileOptions(pages, 180, "f32", threads, n_slots)
        self.executable: Executable = get_backend(backend).compile(self.program, recipe.weights(), options)

    def segment(self, start: int, n_rows: int, slot: int) -> Segment:
        blocks = -(-(start + n_rows) // PAGE)
        pages = [np.arange(4 * slot, 4 * slot + blocks, dtype=np.int32)] * len(self.program.windows)
        return Segment(start, n_rows, pages, slot)

    def step(self, ids: npt.NDArray[np.int32], *segments: Segment) -> npt.NDArray[np.float32]:
        return self.executable.step(Batch(ids, segments, np.arange(len(ids), dtype=np.int32)))

    def run(
        self, ids: npt.NDArray[np.int32], slot: int = 0, start: int = 0, chunk: int = 60
    ) -> npt.NDArray[np.float32]:
        """Return the logits of one sequence's rows from `start` on."""
        parts = [ids[at : at + chunk] for at in range(start, len(ids), chunk)]
        starts = range(start, len(ids), chunk)
        return np.concatenate(
            [self.step(p, self.segment(at, len(p), slot)) for at, p in zip(starts, parts, strict=True)]
        )

    def copy(self, source: int, target: int) -> None:
        """Copy the states and the pages of a slot."""
        self.executable.copy_states([(source, target)])
        for group in range(len(self.program.windows)):
            self.executable.copy_pages(group, [(4 * source + i, 4 * target + i) for i in range(4)])


@pytest.mark.parametrize("lean", [False, True], ids=["full", "lean"])
@pytest.mark.parametrize("name", NAMES)
def test_logits_match_llama_cpp(name: str, lean: bool, backend: str) -> None:
    recipe = conformance.recipe(name, lean=lean, folder=SHARED)
    weights = recipe.weights()
    program = build(recipe.metadata, recipe.tensors)
    verify(program, weights)
    executable = get_backend(backend).compile(program, weights, options_for(program, N_TOKENS))
    for chunk in (None, 1, 7) if lean else (None,):
        logits = run_tokens(executable, program, conformance.tokens(), chunk)
        assert nmse(logits, conformance.golden(name, SHARED)) < 1e-8, f"in chunks of {chunk}"
    executable.close()


@pytest.mark.parametrize("name", NAMES)
def test_threads_chunks_and_instruction_sets_give_equal_bits(name: str) -> None:
    if not available():
        pytest.skip("edgellm._native is not built")
    from edgellm.backends.native import NativeBackend

    recipe = conformance.recipe(name, lean=True, folder=SHARED)
    program, weights = build(recipe.metadata, recipe.tensors), recipe.weights()
    expected = None
    for i, isa in enumerate(available()):
        for threads, chunk in ((2, 13),) if i else ((1, None), (1, 1), (2, 13), (5, None)):
            executable = NativeBackend(isa).compile(program, weights, options_for(program, 60, threads=threads))
            found = run_tokens(executable, program, TOKENS, chunk)
            executable.close()
            expected = found if expected is None else expected
            np.testing.assert_array_equal(found, expected, f"{isa}, {threads} threads, chunks of {chunk}")


@pytest.mark.parametrize("name", KINDS)
def test_neighbours_do_not_share_their_states(name: str, backend: str) -> None:
    model = Compiled(name, backend)
    first, second = TOKENS[:20], TOKENS[20:50]
    alone = model.run(first), model.run(second, 1)
    model.run(second[:11], 1)
    model.run(second, 0)
    both = model.step(np.concatenate([second[11:], first]), model.segment(11, 19, 1), model.segment(0, 20, 2))
    bound = 1e-13 if backend == "reference" else 0.0
    assert nmse(both[:19], alone[1][11:]) <= bound
    assert nmse(both[19:], alone[0]) <= bound


@pytest.mark.parametrize("name", KINDS)
def test_a_copied_state_carries_a_sequence_on(name: str, backend: str) -> None:
    model = Compiled(name, backend)
    expected = model.run(TOKENS)[32:]
    model.run(TOKENS[:32])
    model.copy(0, 2)
    model.run(TOKENS[::-1].copy())
    found = model.run(TOKENS, 2, 32)
    assert nmse(found, expected) <= (1e-13 if backend == "reference" else 0.0)
    assert nmse(model.run(TOKENS, 2, 32), expected) > 1e-9  # The state is not that of position 32 any more.


def test_slots_are_checked(backend: str) -> None:
    model = Compiled("mamba2-dense", backend)
    for slots in ((3,), (-1,), (1, 1)):
        ids = TOKENS[: 4 * len(slots)]
        with pytest.raises(ArgumentError, match="slot"):
            model.step(ids, *(Segment(0, 4, [], slot) for slot in slots))
    with pytest.raises(ArgumentError, match="slot 3"):
        model.executable.copy_states([(0, 3)])


@pytest.mark.parametrize(
    ("name", "key", "value", "message"),
    [
        ("mamba2-dense", "ssm.inner_size", 2**30, "wider than every tensor"),
        ("mamba2-dense", "ssm.time_step_rank", 3, "does not divide"),
        ("mamba2-dense", "ssm.group_count", 0, "must be from 1"),
        ("mamba-dense", "ssm.conv_kernel", 1, "must be from 2"),
        ("mamba-dense", "ssm.state_size", 64, "wrong shape"),
        ("jamba-dense", "attention.head_count_kv", [2, 2], "does not divide 0 heads"),
        ("lfm2-dense", "shortconv.l_cache", 4, "wrong shape"),
        ("qwen35-dense", "attention.recurrent_layers", [1], "must have one value"),
        ("qwen35-dense", "ssm.group_count", 5, "does not divide"),
    ],
)
def test_sizes_that_make_no_sense_are_format_errors(name: str, key: str, value: object, message: str) -> None:
    recipe = conformance.recipe(name, lean=True, folder=SHARED)
    recipe.metadata[f"{recipe.metadata['general.architecture']}.{key}"] = value
    with pytest.raises(ModelFormatError, match=message):
        verify(build(recipe.metadata, recipe.tensors), recipe.weights())
