"""Options that several verbs share, and the keyword arguments they become."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import click

from edgellm.cli.groups import GroupedOption

F = TypeVar("F", bound=Callable[..., Any])

SAMPLING, FURTHER, MODEL = "Choosing tokens", "Further ways of choosing tokens", "Running the model"
"""Sections of the help."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A number that changes how text is generated, named as in `Model.generate`."""

    name: str
    kind: type[int] | type[float]
    help: str
    others: tuple[str, ...] = ()
    """Further options for it, as llama.cpp's tools have them."""
    group: str = FURTHER


SETTINGS = (
    Setting("temperature", float, "Randomness; 0 takes the likeliest token.  [default: 0.8]", ("--temp",), SAMPLING),
    Setting("top_k", int, "Choose among the N likeliest tokens; 0 for all.  [default: 40]", (), SAMPLING),
    Setting(
        "top_p", float, "Choose among the likeliest that together have this probability.  [default: 0.95]", (), SAMPLING
    ),
    Setting("min_p", float, "At least this likely, relative to the likeliest.  [default: 0.05]", (), SAMPLING),
    Setting(
        "repetition_penalty",
        float,
        "Above 1: recent tokens become less likely.  [default: 1]",
        ("--repeat-penalty",),
        SAMPLING,
    ),
    Setting("seed", int, "Makes the random choices repeatable.", ("-s",), SAMPLING),
    Setting("max_tokens", int, "Write at most N tokens.", ("-n", "--predict"), SAMPLING),
    Setting("frequency_penalty", float, "Above 0: less likely with each time a token occurred."),
    Setting("presence_penalty", float, "Above 0: less likely once a token has occurred."),
    Setting("penalty_last_n", int, "Tokens that count as recent; -1 for all.", ("--repeat-last-n",)),
    Setting("typical_p", float, "As top-p, most typical tokens first; 1 is off.", ("--typical",)),
    Setting("top_n_sigma", float, "At most so many deviations below the likeliest.", ("--top-nsigma",)),
    Setting("xtc_probability", float, "How often top choices are excluded; 0 is off."),
    Setting("xtc_threshold", float, "Top choices have at least this probability."),
    Setting("dynatemp_range", float, "How far the temperature goes down and up; 0 is off."),
    Setting("dynatemp_exponent", float, "The power of the entropy that it follows.", ("--dynatemp-exp",)),
    Setting("mirostat", int, "2 keeps the surprise of the text steady; 0 is off."),
    Setting("mirostat_tau", float, "The surprise to keep, in bits.", ("--mirostat-ent",)),
    Setting("mirostat_eta", float, "How fast it is corrected.", ("--mirostat-lr",)),
    Setting("adaptive_target", float, "Prefer tokens of this probability; -1 is off."),
    Setting("adaptive_decay", float, "How long its average remembers, from 0 to 0.99."),
    Setting("dry_multiplier", float, "Penalty on repeated sequences; 0 is off."),
    Setting("dry_base", float, "How fast it grows with their length."),
    Setting("dry_allowed_length", int, "Shorter repetitions are free."),
    Setting("dry_last_n", int, "Tokens to search for them; -1 for all.", ("--dry-penalty-last-n",)),
)

OTHERS: dict[str, type] = {"stop": list, "samplers": list, "dry_breakers": list, "logit_bias": dict}
"""Settings that are no numbers, and what they are."""

BACKEND = click.Choice(("auto", "native", "numba", "reference"))
KV_TYPE = click.Choice(("f16", "q8_0", "f32"))

_model_option = partial(click.option, cls=GroupedOption, group=MODEL)
_MODEL = (
    _model_option("--n-ctx", type=int, help="Context size in tokens; by default what model and memory allow."),
    _model_option("--threads", type=int, help="CPU threads; by default one for each physical core at hand."),
    _model_option("--backend", type=BACKEND, help="What computes; auto, the default, takes the fastest."),
    _model_option(
        "--kv-type",
        type=KV_TYPE,
        help="How keys and values are kept; f16 by default, q8_0 takes half the memory.",
    ),
    _model_option("--max-memory", help="Fit the context into this much memory, such as 3GB."),
)


def model_options(command: F) -> F:
    """Add the options of loading a model."""
    return _add(command, _MODEL)


def sampling_options(command: F) -> F:
    """Add the options of generating text."""
    numbers = {group: [_number(s) for s in SETTINGS if s.group == group] for group in (SAMPLING, FURTHER)}
    further = partial(click.option, cls=GroupedOption, group=FURTHER)
    return _add(
        command,
        (
            *numbers[SAMPLING],
            click.option(
                "--stop", multiple=True, metavar="TEXT", help="End before this text; repeatable.",
                cls=GroupedOption, group=SAMPLING,
            ),
            *numbers[FURTHER],
            further(
                "--dry-sequence-breaker", "dry_breakers", multiple=True, metavar="TEXT",
                help="No repetition reaches across TEXT; none for no such text; repeatable.",
            ),
            further(
                "--logit-bias", "-l", "logit_bias", multiple=True, metavar="ID±BIAS", callback=_biases,
                help="Such as 7+1.5, or 7-inf, which forbids token 7; repeatable.",
            ),
            further("--samplers", metavar="NAMES", help="The steps, in order, such as top_k;min_p;temperature."),
        ),
    )  # fmt: skip


def _number(setting: Setting) -> Callable[[F], F]:
    return click.option(
        *setting.others, f"--{setting.name.replace('_', '-')}", setting.name, type=setting.kind, help=setting.help,
        metavar="N" if setting.kind is int else "X", cls=GroupedOption, group=setting.group,
    )  # fmt: skip


def _biases(_ctx: click.Context, _parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, float | bool]:
    found: dict[str, float | bool] = {}
    for text in given:
        match = re.fullmatch(r"(\d+)=?([+-](?:inf|\d+(?:\.\d*)?))", text)
        if match is None:
            raise click.BadParameter(f"{text!r} is no token id and bias, such as 15043+1 or 15043-inf")
        found[match[1]] = False if match[2] == "-inf" else float(match[2])
    return found


def _add(command: F, options: Iterable[Callable[[F], F]]) -> F:
    for option in reversed(tuple(options)):
        command = option(command)
    return command


def model_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of `edgellm.Model` that the user gave."""
    return _given(given, ("n_ctx", "threads", "backend", "kv_type", "max_memory"))


def sampling_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of `Model.generate` that the user gave."""
    chosen = _given(given, tuple(s.name for s in SETTINGS))
    if given.get("stop"):
        chosen["stop"] = list(given["stop"])
    if given.get("samplers") is not None:
        names = (name.strip() for name in re.split("[;,]", given["samplers"]))
        chosen["samplers"] = [{"typ_p": "typical_p"}.get(name, name) for name in names if name]
    if given.get("dry_breakers"):
        chosen["dry_breakers"] = [text for text in given["dry_breakers"] if text != "none"]
    if given.get("logit_bias"):
        chosen["logit_bias"] = given["logit_bias"]
    return chosen


def _given(options: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: options[name] for name in names if options.get(name) is not None}
