"""Steps against llama.cpp's samplers of the same names, as tests/data/sampling/make.py recorded them."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgellm.sampling import edits, filters, shapes
from edgellm.sampling.candidates import Candidates
from edgellm.sampling.repeats import Repeats

CASES = json.loads((Path(__file__).parents[1] / "data" / "sampling" / "peer.json").read_text())
SCALED = ("temperature", "dynamic_temperature")
"""Steps whose logits have the largest one at zero."""


def apply(step: str, candidates: Candidates, settings: dict[str, Any], history: list[int]) -> Candidates:
    if step == "penalties":
        counts = Counter(history)
        return edits.penalties(candidates, np.array(list(counts)), np.array(list(counts.values())), **settings)
    if step == "dry":
        return edits.dry(candidates, *Repeats(history, -1).lengthened(settings["allowed_length"]), **settings)
    if step == "xtc":
        return filters.xtc(candidates, 1.0, settings["threshold"], 0.0)
    function = getattr(filters, step, None) or getattr(shapes, step)
    found: Candidates = function(candidates, **settings)
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["step"])
def test_a_step_leaves_the_tokens_and_logits_that_the_peer_leaves(case: dict[str, Any]) -> None:
    candidates = Candidates.all(np.array(case["logits"], np.float32))
    found = apply(case["step"], candidates, case["settings"], case["history"])
    left = {int(token): value for token, value in case["left"].items()}
    ours = dict(zip(found.ids.tolist(), found.logits.tolist(), strict=True))
    assert ours.keys() == left.keys()
    top = max(left.values()) if case["step"] in SCALED else 0.0
    assert ours == pytest.approx({token: value - top for token, value in left.items()}, abs=3e-4, rel=1e-4)


def test_every_step_was_recorded_and_does_something() -> None:
    changed = {case["step"] for case in CASES if list(map(float, case["left"].values())) != case["logits"]}
    assert changed == {
        "top_k", "top_p", "min_p", "typical_p", "top_n_sigma", "xtc", "temperature", "dynamic_temperature",
        "mirostat", "adaptive_p", "penalties", "dry",
    }  # fmt: skip
