"""Options that change how tokens are chosen: their names, here and elsewhere, and what they become."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from edgellm.cli.options import OTHERS, SETTINGS
from edgellm.keywords import GenerateArguments, settle
from edgellm.sampling import SamplingParams
from tests.support.scripted import ScriptedModel

Install = Callable[..., ScriptedModel]
Invoke = Callable[..., Result]


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: s.name)
def test_every_number_has_an_option_of_its_name_and_those_of_llama_cpp(
    install: Install, invoke: Invoke, setting: Any
) -> None:
    for option in (f"--{setting.name.replace('_', '-')}", *setting.others):
        model = install(["x"])
        assert invoke("run", "--chat", option, "1", "hi").exit_code == 0
        assert model.keywords == [{setting.name: 1}]
        assert type(model.keywords[0][setting.name]) is setting.kind


def test_the_options_are_arguments_of_generate() -> None:
    names = [setting.name for setting in SETTINGS] + list(OTHERS)
    assert len(set(names)) == len(names)
    assert set(names) <= {field.name for field in dataclasses.fields(GenerateArguments)}
    numbers = [field.name for field in dataclasses.fields(SamplingParams) if type(field.default) in (int, float)]
    assert set(numbers) <= set(names)


def test_the_help_tells_the_defaults() -> None:
    told = {s.name: float(found[1]) for s in SETTINGS if (found := re.search(r"\[default: (.+)\]", s.help))}
    assert told == {name: getattr(SamplingParams(), name) for name in told}
    assert {"temperature", "top_k", "top_p", "min_p"} <= told.keys()


@pytest.mark.parametrize(
    ("options", "keywords"),
    [
        (["--samplers", "top_k; min_p;temperature"], {"samplers": ["top_k", "min_p", "temperature"]}),
        (["--samplers", "top_k,xtc"], {"samplers": ["top_k", "xtc"]}),
        (["--samplers", "typ_p;top_p"], {"samplers": ["typical_p", "top_p"]}),
        (["--samplers", ""], {"samplers": []}),
        (["--dry-sequence-breaker", "\n", "--dry-sequence-breaker", "x:"], {"dry_breakers": ["\n", "x:"]}),
        (["--dry-sequence-breaker", "none"], {"dry_breakers": []}),
        (["--logit-bias", "7+1.5", "-l", "12-inf", "-l", "3-2"], {"logit_bias": {"7": 1.5, "12": False, "3": -2.0}}),
        (["-l", "7=+1"], {"logit_bias": {"7": 1.0}}),
        (["--mirostat", "2", "--temp", "0.5"], {"mirostat": 2, "temperature": 0.5}),
    ],
)
def test_lists_and_biases(install: Install, invoke: Invoke, options: list[str], keywords: dict[str, Any]) -> None:
    model = install(["x"])
    assert invoke("run", "--chat", *options, "hi").exit_code == 0
    assert model.keywords == [keywords]
    settle(GenerateArguments, keywords)


@pytest.mark.parametrize("bias", ["7", "x+1", "7+x", "7+inf+", "-7+1", "7+nan"])
def test_a_bias_that_cannot_be_read_is_a_usage_error(install: Install, invoke: Invoke, bias: str) -> None:
    install(["x"])
    result = invoke("run", f"--logit-bias={bias}", "hi")
    assert result.exit_code == 2
    assert "such as 15043+1" in result.stderr


@pytest.mark.parametrize("verb", ["run", "chat"])
def test_help_is_in_sections(invoke: Invoke, verb: str) -> None:
    text = invoke(verb, "--help").stdout
    titles = ["Options:", "Choosing tokens:", "Further ways of choosing tokens:", "Running the model:"]
    places = [text.index(f"\n{title}\n") for title in titles]
    assert places == sorted(places)
    rows = [text.index(f"\n  {option}") for option in ("--system", "--temp,", "--stop", "--dry-base", "--n-ctx")]
    (a, b, c, d), (system, temp, stop, dry, n_ctx) = places, rows
    assert a < system < b < temp < stop < c < dry < d < n_ctx
    assert all(len(line) <= 80 for line in text[a:].splitlines())


def test_settings_of_all_kinds_are_saved_with_a_chat(install: Install, invoke: Invoke, tmp_path: Any) -> None:
    file = tmp_path / "chat.json"
    options = ["--mirostat", "2", "-l", "7-inf", "--samplers", "mirostat", "--dry-sequence-breaker", "x"]
    model = install(["one"])
    invoke("chat", *options, input=f"hi\n/save {file}\n")
    again = install(["three"])
    assert invoke("chat", input=f"/load {file}\nhi\n").exit_code == 0
    assert again.keywords[0] == model.keywords[0]
    assert again.keywords[0]["logit_bias"] == {"7": False}
    settle(GenerateArguments, again.keywords[0])
