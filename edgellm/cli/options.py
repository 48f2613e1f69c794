"""Options that several verbs share, and the keyword arguments they become."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Setting:
    """A number that changes how text is generated, named as in `Model.generate`."""

    name: str
    kind: type[int] | type[float]
    help: str


SETTINGS = (
    Setting("temperature", float, "Randomness: 0 always takes the likeliest token."),
    Setting("top_k", int, "Choose among the K likeliest tokens only; 0 for all."),
    Setting("top_p", float, "Choose among the likeliest tokens that make up this much probability."),
    Setting("min_p", float, "Leave out tokens less likely than this fraction of the likeliest one."),
    Setting("repetition_penalty", float, "Above 1: make tokens that occurred less likely."),
    Setting("frequency_penalty", float, "Above 0: less likely for each time a token occurred."),
    Setting("presence_penalty", float, "Above 0: less likely once a token occurred."),
    Setting("seed", int, "Makes the random choices repeatable."),
    Setting("max_tokens", int, "Longest reply, in tokens; by default until the context is full."),
)

BACKEND = click.Choice(("auto", "native", "numba", "reference"))

_MODEL = (
    click.option("--n-ctx", type=int, help="Context size in tokens; by default what the model and the memory allow."),
    click.option("--threads", type=int, help="CPU threads; by default one for each physical core at hand."),
    click.option("--backend", type=BACKEND, help="What computes; auto, the default, takes the fastest."),
    click.option(
        "--kv-type",
        type=click.Choice(("f16", "q8_0", "f32")),
        help="How keys and values are kept; f16 by default, q8_0 takes half the memory.",
    ),
    click.option("--max-memory", help="Fit the context into this much memory, such as 3GB."),
)


def model_options(command: F) -> F:
    """Add the options of loading a model."""
    return _add(command, _MODEL)


def sampling_options(command: F) -> F:
    """Add the options of generating text."""
    stop = click.option("--stop", multiple=True, metavar="TEXT", help="End the reply before this text; repeatable.")
    numbers = (click.option(f"--{s.name.replace('_', '-')}", type=s.kind, help=s.help) for s in SETTINGS)
    return _add(command, (*numbers, stop))


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
    return {**chosen, "stop": list(given["stop"])} if given.get("stop") else chosen


def _given(options: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: options[name] for name in names if options.get(name) is not None}
