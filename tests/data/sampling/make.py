"""Write peer.json: what the samplers of llama.cpp make of small distributions.  Needs llama-cpp-python.

python tests/data/sampling/make.py
"""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import llama_cpp as peer
import numpy as np

SEED = 1


def sampler(step: str, n_vocab: int, settings: dict[str, Any]) -> Any:
    """Return the peer's sampler of a step."""
    s = settings
    if step == "xtc":
        return peer.llama_sampler_init_xtc(1.0, s["threshold"], 1, SEED)
    if step == "dynamic_temperature":
        middle, reach = (s["high"] + s["low"]) / 2, (s["high"] - s["low"]) / 2
        return peer.llama_sampler_init_temp_ext(middle, reach, s["exponent"])
    if step == "penalties":
        return peer.llama_sampler_init_penalties(n_vocab, 64, s["repetition"], s["frequency"], s["presence"])
    if step == "dry":
        return peer.llama_sampler_init_dry(None, s["multiplier"], s["base"], s["allowed_length"], 64, None, 0)
    if step == "mirostat":
        return peer.llama_sampler_init_mirostat_v2(SEED, s["limit"] / 2, 0.1)
    if step == "adaptive_p":
        return peer.llama_sampler_init_adaptive_p(s["target"], 0.9, SEED)
    (value,) = s.values()
    plain = {
        "top_k": lambda: peer.llama_sampler_init_top_k(value),
        "top_p": lambda: peer.llama_sampler_init_top_p(value, 1),
        "min_p": lambda: peer.llama_sampler_init_min_p(value, 1),
        "typical_p": lambda: peer.llama_sampler_init_typical(value, 1),
        "top_n_sigma": lambda: peer.llama_sampler_init_top_n_sigma(value),
        "temperature": lambda: peer.llama_sampler_init_temp(value),
    }
    return plain[step]()


def apply(chosen: Any, logits: list[float], history: list[int]) -> dict[int, float]:
    """Return the logits of the tokens that a sampler leaves possible, after it has accepted `history`."""
    for token in history:
        peer.llama_sampler_accept(chosen, token)
    array = (peer.llama_token_data * len(logits))(*((i, value, 0.0) for i, value in enumerate(logits)))
    found = peer.llama_token_data_array(data=array, size=len(logits), selected=-1, sorted=False)
    peer.llama_sampler_apply(chosen, ctypes.byref(found))
    peer.llama_sampler_free(chosen)
    left = [found.data[i] for i in range(found.size)]
    return {entry.id: round(entry.logit, 4) for entry in left if np.isfinite(entry.logit)}


def cases() -> list[dict[str, Any]]:
    """Return cases of every step, each with other logits and settings."""
    rng = np.random.default_rng(SEED)

    def draw(low: float, high: float) -> float:
        return round(float(rng.uniform(low, high)), 2)

    found = []
    for _ in range(8):
        wishes: dict[str, dict[str, Any]] = {
            "top_k": {"k": int(rng.integers(1, 16))},
            "top_p": {"p": draw(0.05, 0.98)},
            "min_p": {"p": draw(0.02, 0.5)},
            "typical_p": {"p": draw(0.05, 0.98)},
            "top_n_sigma": {"n": draw(0.3, 2.5)},
            "xtc": {"threshold": draw(0.01, 0.3)},
            "temperature": {"t": draw(0.3, 3.0)},
            "dynamic_temperature": {"low": draw(0.1, 0.9), "high": draw(1.0, 2.0), "exponent": draw(0.3, 2.0)},
            "mirostat": {"limit": draw(1.0, 6.0)},
            "adaptive_p": {"target": draw(0.05, 0.9)},
            "penalties": {"repetition": draw(1.05, 1.8), "frequency": draw(0.0, 0.8), "presence": draw(0.0, 0.8)},
            "dry": {"multiplier": draw(0.3, 1.5), "base": draw(1.1, 2.0), "allowed_length": int(rng.integers(1, 4))},
        }
        for step, settings in wishes.items():
            logits = (rng.standard_normal(16) * rng.uniform(0.5, 3.0)).round(3).tolist()
            history = rng.integers(0, 4, 20).tolist() if step in ("penalties", "dry") else []
            left = apply(sampler(step, len(logits), settings), logits, history)
            found.append({"step": step, "settings": settings, "history": history, "logits": logits, "left": left})
    return found


if __name__ == "__main__":
    lines = ",\n".join(json.dumps(case) for case in cases())
    Path(__file__).with_name("peer.json").write_text(f"[\n{lines}\n]\n")
