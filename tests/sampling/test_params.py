import dataclasses
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from edgellm.errors import ArgumentError
from edgellm.sampling import SamplingParams

NUMBERS = [
    "temperature",
    "top_p",
    "min_p",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
    "typical_p",
    "top_n_sigma",
    "xtc_probability",
    "xtc_threshold",
    "dynatemp_range",
    "dynatemp_exponent",
    "mirostat_tau",
    "mirostat_eta",
    "adaptive_target",
    "adaptive_decay",
    "dry_multiplier",
    "dry_base",
]
INTEGERS = ["top_k", "penalty_last_n", "seed", "mirostat", "dry_allowed_length", "dry_last_n"]


def test_every_number_is_among_those_checked_here() -> None:
    numbers = {f.name for f in dataclasses.fields(SamplingParams) if type(f.default) in (int, float)}
    assert numbers | {"seed"} == {*NUMBERS, *INTEGERS}


def message(**setting: Any) -> str:
    with pytest.raises(ArgumentError) as caught:
        SamplingParams(**setting)
    return str(caught.value)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "0.5", True, False, None, 10**400, 1j, [0.5]])
def test_what_is_no_finite_number_is_refused(name: str, value: object) -> None:
    text = message(**{name: value})
    assert name in text
    assert repr(value) in text


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("value", [math.nan, 1.5, 40.0, "40", True, False, -2, [1]])
def test_what_is_no_sensible_integer_is_refused(name: str, value: object) -> None:
    text = message(**{name: value})
    assert name in text
    assert repr(value) in text


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("temperature", -0.1, "from 0"),
        ("top_p", -0.1, "from 0 to 1"),
        ("top_p", 1.5, "from 0 to 1"),
        ("min_p", -1, "from 0 to 1"),
        ("min_p", 1.0001, "from 0 to 1"),
        ("repetition_penalty", 0, "above 0"),
        ("repetition_penalty", -1, "above 0"),
        ("frequency_penalty", 101, "from -100 to 100"),
        ("presence_penalty", -101, "from -100 to 100"),
        ("top_k", -2, "from -1"),
        ("penalty_last_n", -2, "from -1"),
        ("seed", 2**64, f"from -1 to {2**64 - 1}"),
        ("typical_p", 1.1, "from 0 to 1"),
        ("top_n_sigma", -1.5, "from -1"),
        ("xtc_probability", -0.1, "from 0 to 1"),
        ("xtc_threshold", 2, "from 0 to 1"),
        ("dynatemp_range", -0.5, "from 0 to 1e+06"),
        ("dynatemp_exponent", -1, "from 0"),
        ("mirostat", 3, "from 0 to 2"),
        ("mirostat_tau", -1, "from 0 to 1000"),
        ("mirostat_eta", 101, "from 0 to 100"),
        ("adaptive_target", 1.5, "from -1 to 1"),
        ("adaptive_decay", 1.0, "from 0 to 0.99"),
        ("dry_multiplier", -0.8, "from 0"),
        ("dry_base", 0.5, "from 1"),
        ("dry_allowed_length", 0, "from 1"),
        ("dry_last_n", -2, "from -1"),
    ],
)
def test_the_error_names_argument_value_and_range(name: str, value: float, allowed: str) -> None:
    text = message(**{name: value})
    assert text.startswith(name)
    assert allowed in text
    assert text.endswith(f"not {value!r}")


@pytest.mark.parametrize(
    "setting",
    [
        {"temperature": 0},
        {"temperature": 1e-300},
        {"top_p": 0},
        {"top_p": 1},
        {"min_p": 1},
        {"top_k": -1},
        {"top_k": 10**9},
        {"repetition_penalty": 0.5},
        {"penalty_last_n": -1},
        {"seed": -1},
        {"seed": 0},
        {"seed": 2**64 - 1},
        {"top_p": np.float32(0.5)},
        {"top_k": np.int64(3)},
        {"temperature": Fraction(1, 2)},
    ],
)
def test_the_ends_of_the_ranges_and_other_number_types_are_accepted(setting: dict[str, Any]) -> None:
    params = SamplingParams(**setting)
    for name, value in setting.items():
        assert getattr(params, name) == value
        assert type(getattr(params, name)) in (int, float)


@pytest.mark.parametrize(
    "bias",
    [{3: -100, 5: 100}, {"3": -100.0, "5": 100}, [(3, -100), (5, 100)], [[3, -100], ["5", 100]], ((3, -100), (5, 100))],
)
def test_every_way_to_write_a_bias_means_the_same(bias: Any) -> None:
    assert SamplingParams(logit_bias=bias) == SamplingParams(logit_bias={3: -100.0, 5: 100.0})


@pytest.mark.parametrize("never", [-math.inf, False, np.float32(-math.inf)])
def test_false_and_minus_infinity_forbid_a_token(never: Any) -> None:
    assert SamplingParams(logit_bias={7: never}).logit_bias == ((7, -math.inf),)


@pytest.mark.parametrize("bias", [None, {}, [], ()])
def test_no_bias_can_be_written_in_several_ways(bias: Any) -> None:
    assert SamplingParams(logit_bias=bias).logit_bias == ()


@pytest.mark.parametrize(
    "bias",
    [
        False,
        5,
        "5",
        [5],
        [(5, 1.0, 2.0)],
        ["51"],
        {5: True},
        {5: "1"},
        {5: "-inf"},
        {5: None},
        {5: math.inf},
        {5: math.nan},
        {-1: 1.0},
        {True: 1.0},
        {1.5: 1.0},
        {"-1": 1.0},
        {"five": 1.0},
        {"²": 1.0},
        {"9" * 5000: 1.0},
        [(5, 1.0), (5, 2.0)],
        {"5": 1.0, 5: 1.0},
    ],
)
def test_a_senseless_bias_is_refused(bias: Any) -> None:
    assert "logit_bias" in message(logit_bias=bias)


def test_params_are_values() -> None:
    one = SamplingParams(top_k=3, logit_bias={1: 2.0})
    assert one == SamplingParams(top_k=3, logit_bias=[(1, 2)])
    assert hash(one) == hash(SamplingParams(top_k=3, logit_bias=[(1, 2)]))
    with pytest.raises(AttributeError):
        one.top_k = 4  # type: ignore[misc]


def test_mirostat_has_no_version_1() -> None:
    assert "no version 1" in message(mirostat=1)


@pytest.mark.parametrize(
    "samplers", ["top_k", 5, ["top_q"], ["top_k", "top_k"], [None], [["top_k"]], b"top_k", {"top_k", "typ_p"}]
)
def test_a_senseless_order_is_refused(samplers: Any) -> None:
    assert message(samplers=samplers).startswith("samplers")


@pytest.mark.parametrize("breakers", ["abc", b"x", [""], ["x" * 41], [5], {"a": 1}, 7, ["a"] * 65])
def test_senseless_breakers_are_refused(breakers: Any) -> None:
    assert message(dry_breakers=breakers).startswith("dry_breakers")


def test_lists_become_tuples() -> None:
    params = SamplingParams(samplers=["top_k", "temperature"], dry_breakers=["a"])
    assert (params.samplers, params.dry_breakers) == (("top_k", "temperature"), ("a",))
    assert hash(params) == hash(SamplingParams(samplers=("top_k", "temperature"), dry_breakers=("a",)))
