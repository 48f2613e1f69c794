"""Rotations as the metadata describes them, against figures worked out by hand."""

import math
from typing import Any

import pytest

from edgellm.architectures import Params
from edgellm.architectures.rope import local_rope_spec, rope_spec
from edgellm.errors import ModelFormatError


def params(head_dim: int = 8, **keys: Any) -> Params:
    metadata = {f"x.rope.{key.replace('__', '.')}": value for key, value in keys.items()}
    metadata |= {"x.block_count": 1, "x.attention.key_length": head_dim, "x.context_length": 4096}
    return Params("x", metadata, {"t": (head_dim,)})


def test_the_plain_rotation_is_a_geometric_series() -> None:
    spec = rope_spec(params(), "neox")
    assert spec.inv_freq == pytest.approx((1.0, 0.1, 0.01, 0.001), rel=1e-14)
    assert (spec.style, spec.magnitude, spec.factors, spec.n_rot) == ("neox", 1.0, None, 8)


def test_base_and_width_come_from_the_file() -> None:
    spec = rope_spec(params(freq_base=16.0, dimension_count=4), "norm")
    assert spec.inv_freq == pytest.approx((1.0, 0.25))


@pytest.mark.parametrize("keys", [{"scaling__factor": 4.0}, {"scale_linear": 4.0}])
def test_linear_scaling_slows_every_pair(keys: dict[str, Any]) -> None:
    spec = rope_spec(params(**keys), "norm")
    assert spec.inv_freq == pytest.approx((0.25, 0.025, 0.0025, 0.00025))


def test_a_factor_of_zero_and_the_type_none_scale_nothing() -> None:
    plain = rope_spec(params(), "norm")
    assert rope_spec(params(scaling__factor=0.0), "norm") == plain
    assert rope_spec(params(scaling__factor=4.0, scaling__type="none"), "norm") == plain


def test_yarn_keeps_fast_pairs_stretches_slow_ones_and_blends_between() -> None:
    keys = {"scaling__type": "yarn", "scaling__factor": 8.0, "scaling__original_context_length": 2048}
    spec = rope_spec(params(head_dim=64, **keys), "neox")
    plain = rope_spec(params(head_dim=64), "neox").inv_freq
    # 2048 positions turn pair i by 2048 * 10000^(-i/32) / 2π: 32 times at i = 8.06, once at i = 20.1.
    low, high = 8, 21
    ratio = [spec.inv_freq[i] / plain[i] for i in range(32)]
    assert ratio[: low + 1] == pytest.approx([1.0] * (low + 1))
    assert ratio[high:] == pytest.approx([1.0 / 8.0] * (32 - high))
    middle = (13 - low) / (high - low)
    assert ratio[13] == pytest.approx((1.0 - middle) + middle / 8.0)
    assert spec.magnitude == pytest.approx(1.0 + 0.1 * math.log(8.0))


def test_yarn_takes_its_bounds_strength_and_magnitude_from_the_file() -> None:
    keys: dict[str, Any] = {"scaling__type": "yarn", "scaling__factor": 8.0}
    plain = rope_spec(params(head_dim=64), "neox").inv_freq
    always = rope_spec(params(head_dim=64, **keys, scaling__yarn_beta_slow=1e-9, scaling__yarn_beta_fast=2e-9), "neox")
    assert always.inv_freq == pytest.approx(plain)
    never = rope_spec(params(head_dim=64, **keys, scaling__yarn_ext_factor=0.0), "neox")
    assert never.inv_freq == pytest.approx([f / 8.0 for f in plain])
    assert rope_spec(params(**keys, scaling__yarn_log_multiplier=1.0), "neox").magnitude == pytest.approx(1.0)
    assert rope_spec(params(**keys, scaling__attn_factor=0.5), "neox").magnitude == pytest.approx(
        0.5 * (1.0 + 0.1 * math.log(8.0))
    )


def test_yarn_that_shortens_keeps_the_magnitude() -> None:
    assert rope_spec(params(scaling__type="yarn", scaling__factor=0.5), "neox").magnitude == 1.0


@pytest.mark.parametrize("name", ["yarn_beta_fast", "yarn_beta_slow"])
def test_yarn_needs_bounds_above_zero(name: str) -> None:
    with pytest.raises(ModelFormatError, match=name):
        rope_spec(params(scaling__type="yarn", **{f"scaling__{name}": 0.0}), "neox")


def test_factors_are_used_where_the_file_has_them() -> None:
    p = params()
    p.tensors = {**p.tensors, "rope_freqs.weight": (4,)}
    assert rope_spec(p, "norm", factors="rope_freqs.weight").factors == "rope_freqs.weight"
    assert rope_spec(params(), "norm", factors="rope_freqs.weight").factors is None
    assert rope_spec(p, "norm").factors is None


def test_layers_with_a_window_have_their_own_base_and_no_scaling() -> None:
    p = params(freq_base=1e6, scaling__factor=8.0)
    assert local_rope_spec(p, "neox", 10000.0).inv_freq == pytest.approx((1.0, 0.1, 0.01, 0.001))
    assert local_rope_spec(params(freq_base_swa=16.0), "neox", 10000.0).inv_freq[1] == pytest.approx(0.5)
