"""Models with recurrent layers in the engine: whatever is reused, the outcome is that of a cold run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgellm import Model
from edgellm.backends.base import Batch
from edgellm.cache.pages import GroupSpec, PageCache
from edgellm.cache.state import StatePool
from edgellm.engine.engine import Engine
from edgellm.engine.generation import Generation
from edgellm.engine.memory import MemoryModel, MemoryPlan
from edgellm.engine.request import Request
from edgellm.engine.scheduler import Scheduler, Sizes
from edgellm.errors import BackendError
from edgellm.program import Program, RecurrentState
from edgellm.sampling import Sampler, SamplingParams
from tests.support import conformance
from tests.support.conformance import SHARED
from tests.support.fake import hashed
from tests.support.native import available
from tests.support.recurrent import StateExecutable
from tests.support.tiny import write_tiny


@dataclass
class Bench:
    """An engine whose model is nothing but a state."""

    engine: Engine
    fake: StateExecutable
    states: StatePool

    def start(self, prompt: Sequence[int], max_tokens: int = 8) -> Generation:
        sampler = Sampler(SamplingParams(temperature=0.0), self.fake.n_vocab, list(prompt))
        request = Request(list(prompt), max_tokens=max_tokens, sampler=sampler)
        self.engine.submit(request)
        return Generation(request, self.engine)

    def ids(self, prompt: Sequence[int], max_tokens: int = 8) -> list[int]:
        generation = self.start(prompt, max_tokens)
        assert generation.text == ""
        return generation.token_ids


Factory = Callable[..., Bench]


@pytest.fixture
def bench() -> Iterator[Factory]:
    """A factory of engines, closed at the end."""
    made: list[Engine] = []

    def make(n_slots: int = 8, n_running: int = 4, n_batch: int = 64, n_ctx: int = 2048) -> Bench:
        fake = StateExecutable(hashed(), n_slots)
        states = StatePool(n_slots)
        scheduler = Scheduler(PageCache([], states.has), Sizes(n_ctx, n_batch, n_running, n_batch, 16, 0), states)
        made.append(Engine(fake, scheduler))
        return Bench(made[-1], fake, states)

    yield make
    for engine in made:
        engine.close()


def expected(prompt: Sequence[int], n: int = 8) -> list[int]:
    """What a run without any cache says."""
    history = list(prompt)
    for _ in range(n):
        history.append(hashed()(history))
    return history[len(prompt) :]


PROMPT = [i * 7 % 31 for i in range(100)]


def test_the_same_prompt_again_costs_its_last_page(bench: Factory) -> None:
    b = bench()
    assert b.ids(PROMPT) == expected(PROMPT)
    before = b.fake.rows
    again = b.start(PROMPT)
    assert again.text == ""
    assert again.token_ids == expected(PROMPT)
    assert again.usage.cached_tokens == 96
    assert b.fake.rows - before == 4 + 7


def test_a_shorter_prompt_than_the_cached_one_is_computed_anew(bench: Factory) -> None:
    b = bench()
    b.ids(PROMPT)
    for n in (1, 15, 16, 17, 50, 99):
        assert b.ids(PROMPT[:n]) == expected(PROMPT[:n])


def test_a_conversation_goes_on_from_its_last_whole_page(bench: Factory) -> None:
    b = bench()
    talk = list(PROMPT[:40])
    for turn in range(5):
        talk += b.ids(talk, 30)
        known = len(talk) - 1
        talk += [turn] * 10
        generation = b.start(talk, 5)
        assert generation.text == ""
        assert generation.token_ids == expected(talk, 5)
        assert generation.usage.cached_tokens >= known // 16 * 16 - 16


def test_many_prompts_fork_off_a_common_beginning(bench: Factory) -> None:
    b = bench(n_slots=10)
    prompts = [[*PROMPT[:96], i, *PROMPT[:i]] for i in range(20)]
    b.ids(PROMPT[:97])
    running = [b.start(prompt) for prompt in prompts]
    for prompt, generation in zip(prompts, running, strict=True):
        assert generation.text == ""
        assert generation.token_ids == expected(prompt)


def test_long_prompts_leave_snapshots_on_their_way(bench: Factory) -> None:
    b = bench()
    long = [i * 5 % 29 for i in range(1300)]
    assert b.ids(long, 2) == expected(long, 2)
    fork = [*long[:1100], 3, 1, 4]
    generation = b.start(fork, 4)
    assert generation.text == ""
    assert generation.token_ids == expected(fork, 4)
    assert generation.usage.cached_tokens == 1024


@pytest.mark.parametrize("n_slots", [1, 2, 3])
def test_few_slots_mean_fewer_snapshots_and_the_same_text(bench: Factory, n_slots: int) -> None:
    b = bench(n_slots=n_slots, n_running=n_slots)
    prompts = [PROMPT[i : i + 40] for i in range(12)]
    for _ in range(2):
        running = [b.start(prompt) for prompt in prompts]
        for prompt, generation in zip(prompts, running, strict=True):
            assert generation.text == ""
            assert generation.token_ids == expected(prompt)
    assert b.ids(PROMPT[:40]) == expected(PROMPT[:40])


def test_a_cancelled_request_gives_its_slot_back(bench: Factory) -> None:
    b = bench(n_slots=2, n_running=2)
    for _ in range(6):
        generation = b.start(PROMPT, 1000)
        next(iter(b.start(PROMPT[:20], 1)), None)
        generation.cancel()
    assert b.ids(PROMPT) == expected(PROMPT)
    assert b.ids([*PROMPT, 5, 6]) == expected([*PROMPT, 5, 6])


def test_a_step_that_was_broken_off_counts_for_nothing(bench: Factory) -> None:
    b = bench()

    def once_in_decoding(batch: Batch) -> None:
        if len(batch.tokens) == 1 and batch.segments[0].start == 105:
            b.fake.on_step = lambda batch: None
            b.fake.break_off = True

    b.fake.on_step = once_in_decoding
    assert b.ids(PROMPT, 12) == expected(PROMPT, 12)
    assert b.ids([*PROMPT, *expected(PROMPT, 12)], 4) == expected([*PROMPT, *expected(PROMPT, 12)], 4)


def test_an_error_in_a_step_of_several_ends_only_the_request_it_belongs_to(bench: Factory) -> None:
    b = bench()

    def bad_token(batch: Batch) -> None:
        if 30 in batch.tokens.tolist():
            raise ValueError("no such token")

    b.fake.on_step = bad_token
    good, bad = PROMPT[3:20], [30, 1, 2]
    assert 30 not in good + expected(good, 3)
    running = b.start(good, 3), b.start(bad, 3)
    assert running[0].text == ""
    assert running[0].token_ids == expected(good, 3)
    with pytest.raises(BackendError, match="no such token"):
        _ = running[1].text


class EndsWhenAskedTwice(Request):
    """A request that another thread ends just after the scheduler has asked whether it had ended."""

    asked = -1
    """How often; -1 before it counts."""

    @property
    def done(self) -> bool:
        if self.asked >= 0:
            self.asked += 1
        return self.asked > 1

    @done.setter
    def done(self, value: bool) -> None:
        """It ends by being asked."""


def test_a_request_that_ends_during_a_sweep_gives_everything_back() -> None:
    states = StatePool(1)
    cache = PageCache([GroupSpec(None, 8)], states.has)
    scheduler = Scheduler(cache, Sizes(64, 64, 1, 64, 16, 0), states)
    request = EndsWhenAskedTwice([1, 2, 3], max_tokens=4, sampler=None)
    scheduler.add(request)
    scheduler.advance(*scheduler.plan().works)
    assert states.free == 0
    request.asked = 0
    for _ in range(2):
        scheduler.plan()
    assert states.free == 1
    assert cache.pools[0].free == 8


def plan(state_bytes: int, n_batch: int = 512) -> MemoryPlan:
    """Return the plan of a model with nothing but states of so many bytes."""
    states = {"s": RecurrentState("s", (state_bytes // 4,))}
    program = Program("test", 32_000, 256, 4096, (), {}, {}, {}, recurrent=states)
    return MemoryModel(program, 0, "f16", 1000).plan(4096, n_batch)


def test_small_states_have_a_slot_and_a_snapshot_for_each_sequence() -> None:
    assert plan(1 << 20).n_slots == 64
    assert plan(1 << 20).n_running == 32
    assert plan(1 << 20).states == 64 << 20
    assert plan(1 << 20, n_batch=3).n_slots == 6
    assert plan(1 << 20, n_batch=3).n_running == 3


def test_large_states_have_fewer_but_never_less_than_four() -> None:
    assert plan(32 << 20).n_slots == 16
    assert plan(32 << 20).n_running == 8
    assert plan(1 << 30).n_slots == 4
    assert plan(1 << 30).n_running == 2
    assert plan(1 << 30).total - plan(1 << 30).scratch == 4 << 30


FAMILIES = ("jamba", "lfm2", "mamba2", "qwen35", "falcon-h1")
IDS = np.random.default_rng(3).integers(0, 128, 200).tolist()


@pytest.fixture(params=FAMILIES)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A tiny model of each kind of recurrent layer, without a vocabulary."""
    conformance.need_shared()
    return write_tiny(tmp_path / "tiny.gguf", family=request.param, folder=SHARED)


@pytest.fixture
def load(path: Path) -> Iterator[Callable[..., Model]]:
    """A factory of Models on the native backend, where equal means equal bits."""
    if not available():
        pytest.skip("edgellm._native is not built")
    made: list[Model] = []

    def make(**options: Any) -> Model:
        made.append(Model(path, backend="native", **{"threads": 2, **options}))
        return made[-1]

    yield make
    for model in made:
        model.close()


def greedy(model: Model, ids: Sequence[int], n: int = 12) -> Generation:
    return model.generate(list(ids), max_tokens=n, temperature=0.0)


def finished(generation: Generation) -> list[int]:
    assert generation.text == ""
    return generation.token_ids


def test_the_reference_backend_runs_them_too(path: Path) -> None:
    with Model(path, backend="reference") as model:
        first = finished(greedy(model, IDS[:50], 4))
        again = greedy(model, IDS[:50], 4)
        assert finished(again) == first
        assert again.usage.cached_tokens == 48


def test_logits_do_not_depend_on_the_size_of_a_step(load: Callable[..., Model]) -> None:
    found = [load(n_batch=n).logits(IDS[:100]) for n in (512, 64, 7, 1)]
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_warm_runs_equal_cold_ones(load: Callable[..., Model]) -> None:
    # Of the whole prompt, of a part, of more, and of what the model itself said.
    warm = load()
    said = finished(greedy(warm, IDS[:150], 40))
    for prompt in (IDS[:150], IDS[:149], IDS[:97], IDS[:1], IDS, [*IDS[:150], *said], [*IDS[:150], *said[:20], 5, 6]):
        again = greedy(warm, prompt)
        assert finished(again) == finished(greedy(load(), prompt))
    assert again.usage.cached_tokens >= 144


def test_batched_runs_equal_lone_ones(load: Callable[..., Model]) -> None:
    prompts = [IDS[i : i + 30 + 5 * i] for i in range(6)]
    together = load()
    running = [greedy(together, prompt) for prompt in prompts]
    assert [finished(g) for g in running] == [finished(greedy(load(), prompt)) for prompt in prompts]


def test_runs_after_a_cancelled_one_equal_cold_ones(load: Callable[..., Model]) -> None:
    model = load(n_batch=32)
    greedy(model, IDS[:180], 1).cancel()
    streaming = greedy(model, IDS[:150], 1000)
    while len(streaming.token_ids) < 5:
        time.sleep(0.001)
    streaming.cancel()
    said = streaming.token_ids
    for prompt in ([*IDS[:150], *said, 1, 2, 3], IDS[100:160], IDS[:180]):
        assert finished(greedy(model, prompt)) == finished(greedy(load(), prompt))


def test_preempted_requests_begin_again(load: Callable[..., Model]) -> None:
    # Pages for one context only: several long texts cannot be there at once.
    model = load(n_ctx=128)
    prompts = [IDS[i : i + 40] for i in range(3)]
    running = [greedy(model, prompt, 60) for prompt in prompts]
    cold = load()
    assert [finished(g) for g in running] == [finished(greedy(cold, prompt, 60)) for prompt in prompts]


def test_a_text_beyond_the_context_goes_on(load: Callable[..., Model]) -> None:
    model = load(n_ctx=64, overflow="shift")
    generation = greedy(model, IDS[:40], 100)
    assert len(finished(generation)) == 100
    assert generation.dropped_tokens > 0
    assert finished(greedy(model, IDS[:40], 100)) == generation.token_ids


def test_the_memory_plan_counts_states(load: Callable[..., Model]) -> None:
    memory = load().info.memory
    assert memory.n_slots >= 4
    assert memory.states > 0
    assert memory.total >= memory.weights + memory.kv + memory.states
