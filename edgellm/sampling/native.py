"""The usual samplers in one call of the C core, where it is built: the same choice, without a dozen passes in Python.

What it does not know (other filters, masks, processors) and what is no choice (logits that are NaN) is left to the
steps in Python, which also say what is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache, partial
from importlib import import_module
from struct import pack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgellm.sampling.candidates import Candidates
from edgellm.sampling.memory import Memory
from edgellm.sampling.order import Step
from edgellm.sampling.params import SamplingParams
from edgellm.sampling.shapes import COLDEST

_MOST = 1024
"""Tokens that the core ranks at most: EDGE_MAX_CHOICES."""
_GUESS = 64
"""So many tokens usually reach top_p of the whole vocabulary."""
_TOP_P, _MIN_P, _TEMPERATURE = range(3)

Edits = tuple[NDArray[np.int32], NDArray[np.float32]]
"""Ascending ids, and the logits that they have instead of the model's."""
_NONE: Edits = (np.empty(0, np.int32), np.empty(0, np.float32))


class Shortcut:
    """Chooses by one call of the core."""

    def __init__(
        self,
        core: tuple[Any, str],
        plan: tuple[int, float, bytes],
        memory: Memory,
        bias: partial[Candidates] | None,
        penalties: Step | None,
    ) -> None:
        self._choose, self._isa = core
        self._k, self._whole, self._cuts = plan
        self._window = memory.window
        self._bias = bias
        self._penalties = penalties
        ids = np.empty(0, np.int64) if bias is None else np.sort(bias.keywords["ids"])
        self._biased = ids
        forbids = bias is not None and bool(np.isneginf(bias.keywords["bias"]).all())
        # What is only forbidden has the same logits every time.
        self._fixed = (ids.astype(np.int32), np.full(ids.size, -np.inf, np.float32)) if forbids else None

    def choose(self, logits: NDArray[np.float32], uniform: float) -> int | None:
        """The token, or None where the steps in Python must look: nothing can be chosen, or not so easily."""
        ids, values = self._edits(logits)
        token: int | None = self._choose(self._isa, logits, ids, values, self._k, self._whole, self._cuts, uniform)
        return token

    def _edits(self, logits: NDArray[np.float32]) -> Edits:
        ids = self._biased
        if self._penalties is not None:
            recent, _ = self._window.counts()
            ids = np.union1d(ids, recent)
        elif self._fixed is not None:
            return self._fixed
        if not ids.size:
            return _NONE
        few = Candidates(ids, logits[ids])
        for step in (self._bias, self._penalties):
            if step is not None:
                few = step(few)
        return ids.astype(np.int32), few.logits.astype(np.float32)


def shortcut(
    params: SamplingParams, n_vocab: int, memory: Memory, bias: partial[Candidates] | None, steps: Mapping[str, Step]
) -> Shortcut | None:
    """The shortcut for the bias and then the named steps, None where there is none."""
    names = list(steps)
    penalties = steps["penalties"] if names[:1] == ["penalties"] else None
    plan = _plan(params, n_vocab, names if penalties is None else names[1:])
    core = _core()
    return None if plan is None or core is None else Shortcut(core, plan, memory, bias, penalties)


@lru_cache(maxsize=1)
def _core() -> tuple[Any, str] | None:
    """The core's function and the instruction set to use."""
    try:
        native = import_module("edgellm._native")
        return native.choose, native.cpu_info()["isa"]
    except (ImportError, AttributeError):
        return None


def _plan(params: SamplingParams, n_vocab: int, names: list[str]) -> tuple[int, float, bytes] | None:
    """How many tokens to rank, the share of all that they must reach, and the cuts that follow."""
    if params.greedy:
        return None if names else (1, 0.0, b"")
    first, rest = (names[0], names[1:]) if names else ("", [])
    if first == "top_k" and params.top_k < min(n_vocab, _MOST + 1):
        k, whole = params.top_k, 0.0
    elif first == "top_p" and params.top_p > 0.0 and n_vocab > _GUESS:
        k, whole = _GUESS, params.top_p
    else:
        return None
    cuts = {"top_p": (_TOP_P, params.top_p), "temperature": (_TEMPERATURE, max(params.temperature, COLDEST))}
    if params.min_p > 0.0:
        cuts["min_p"] = (_MIN_P, math.log(params.min_p))
    if not cuts.keys() >= set(rest) or params.dynatemp_range > 0.0:
        return None
    return k, whole, b"".join(pack("=i4xd", *cuts[name]) for name in rest)
