"""The core's shortcut chooses what the steps in Python choose."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgellm.errors import EdgeLLMError
from edgellm.sampling import Sampler, SamplingParams
from edgellm.sampling import native as shortcuts

core = pytest.importorskip("edgellm._native", reason="the native core is not built here")

ODD = [0.0, -0.0, 1e-42, 3.4e38, -3.4e38, -math.inf]


@st.composite
def choices(draw: st.DrawFn) -> tuple[NDArray[np.float32], dict[str, Any]]:
    """Logits with ties and impossible tokens, from flat to peaked, and settings that the core knows."""
    n = draw(st.sampled_from([1, 2, 63, 64, 65, 200, 3000, 30_000]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    logits = (rng.standard_normal(n) * draw(st.sampled_from([0.0, 0.3, 2.0, 8.0, 40.0]))).astype(np.float32)
    if draw(st.booleans()):
        logits = np.round(logits)
    logits[rng.random(n) < draw(st.sampled_from([0.0, 0.5, 1.0]))] = -np.inf
    for odd in draw(st.lists(st.sampled_from([*ODD, math.nan, math.inf]), max_size=2)):
        logits[rng.integers(n)] = odd
    names = draw(st.permutations(["top_k", "top_p", "min_p", "temperature"]))
    some = {int(i): draw(st.sampled_from([-math.inf, 4.0, -2.5, 3.4e38])) for i in rng.integers(0, n, 3)}
    wish = {
        "seed": draw(st.integers(0, 100)),
        "temperature": draw(st.sampled_from([0.0, 0.3, 0.8, 1.0, 3.0])),
        "top_k": draw(st.sampled_from([0, 1, 7, 40, 1024])),
        "top_p": draw(st.sampled_from([1e-9, 0.3, 0.9, 0.95, 0.9999, 1.0])),
        "min_p": draw(st.sampled_from([0.0, 0.05, 0.7, 1.0])),
        "samplers": draw(st.sampled_from([None, ["penalties", *names], names])),
        "logit_bias": draw(st.sampled_from([None, some, dict.fromkeys(some, False)])),
        "repetition_penalty": draw(st.sampled_from([1.0, 1.3])),
        "presence_penalty": draw(st.sampled_from([0.0, 0.7])),
    }
    return logits, wish


def outcome(logits: NDArray[np.float32], wish: dict[str, Any], *, quick: bool) -> list[int | str]:
    one = Sampler(SamplingParams(**wish), logits.size, [0, logits.size - 1, 0])
    if not quick:
        one._shortcut = None
    found: list[int | str] = []
    try:
        for _ in range(4):
            found.append(one.sample(logits))
            one.accept(int(found[-1]))
    except EdgeLLMError as error:
        found.append(f"{type(error).__name__}: {error}")
    return found


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@settings(max_examples=300, deadline=None)
@given(choices())
def test_the_core_and_the_steps_choose_alike(case: tuple[NDArray[np.float32], dict[str, Any]]) -> None:
    assert outcome(*case, quick=True) == outcome(*case, quick=False)


@pytest.mark.parametrize(
    "wish",
    [
        {},
        {"temperature": 0.0},
        {"top_k": 1024, "top_p": 1.0, "min_p": 0.0},
        {"top_k": 0, "top_p": 0.9},
        {"repetition_penalty": 1.1, "logit_bias": {3: 1.0}},
        {"temperature": 0.0, "frequency_penalty": 0.5},
    ],
)
def test_usual_settings_take_the_shortcut(wish: dict[str, Any]) -> None:
    logits = (np.random.default_rng(5).standard_normal(50_000) * 8).astype(np.float32)
    one = Sampler(SamplingParams(seed=3, **wish), logits.size, [1, 2, 3])
    assert one._shortcut is not None
    tokens = {one._shortcut.choose(logits, i / 50) for i in range(50)}
    assert None not in tokens
    assert (len(tokens) == 1) == (one.params.temperature == 0.0)


@pytest.mark.parametrize(
    "wish",
    [
        {"mirostat": 2},
        {"typical_p": 0.9},
        {"dry_multiplier": 0.8},
        {"top_k": 1025},
        {"top_k": 0, "top_p": 1.0},
        {"dynatemp_range": 0.2},
        {"samplers": ["temperature", "top_k"]},
        {"samplers": []},
    ],
)
def test_other_settings_are_left_to_the_steps(wish: dict[str, Any]) -> None:
    assert Sampler(SamplingParams(**wish), 5000)._shortcut is None


def test_many_tokens_that_reach_top_p_are_drawn_by_their_ids() -> None:
    logits = np.zeros(2000, np.float32)
    logits[500:] = -50.0
    wish = {"seed": 0, "top_k": 0, "top_p": 0.9999, "min_p": 0.0, "temperature": 0.5}
    one = Sampler(SamplingParams(**wish), logits.size)
    assert one._shortcut is not None
    assert one._shortcut.choose(logits, 0.5) == 250
    assert outcome(logits, wish, quick=True) == outcome(logits, wish, quick=False)


def test_without_the_core_the_steps_do_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortcuts, "_core", lambda: None)
    one = Sampler(SamplingParams(seed=1), 100)
    assert one._shortcut is None
    assert 0 <= one.sample(np.zeros(100, np.float32)) < 100


@pytest.mark.parametrize(
    ("ids", "values", "k", "cuts"),
    [
        ([5, 5], [0.0, 0.0], 4, b""),
        ([9, 3], [0.0, 0.0], 4, b""),
        ([-1], [0.0], 4, b""),
        ([100], [0.0], 4, b""),
        ([1], [], 4, b""),
        ([], [], 0, b""),
        ([], [], 1025, b""),
        ([], [], 4, b"x" * 15),
        ([], [], 4, b"\0" * 16 * 17),
    ],
)
def test_the_core_refuses_what_does_not_fit(ids: list[int], values: list[float], k: int, cuts: bytes) -> None:
    logits = np.zeros(100, np.float32)
    with pytest.raises(ValueError, match=r"choose wants|not a multiple"):
        core.choose("generic", logits, np.array(ids, np.int32), np.array(values, np.float32), k, 0.0, cuts, 0.5)


def test_every_instruction_set_chooses_alike() -> None:
    rng = np.random.default_rng(11)
    none = np.empty(0, np.int32), np.empty(0, np.float32)
    for n in (1, 70, 5000, 40_000):
        logits = (rng.standard_normal(n) * 5).astype(np.float32)
        found = {
            isa: [
                core.choose(isa, logits, *none, min(n, 64), whole, b"", u / 20)
                for whole in (0.0, 0.8)
                for u in range(20)
            ]
            for isa in core.cpu_info()["available"]
        }
        assert all(tokens == found["generic"] for tokens in found.values())
