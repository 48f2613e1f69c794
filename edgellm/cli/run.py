"""``edgellm run``: one text, its continuation or answer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from edgellm.cli.errors import INTERRUPTED, Failure
from edgellm.cli.groups import GroupedCommand
from edgellm.cli.loading import open_model
from edgellm.cli.options import model_arguments, model_options, sampling_arguments, sampling_options
from edgellm.cli.reply import stream
from edgellm.cli.structured import structured_arguments, structured_options
from edgellm.cli.ui import allow_any_text, is_terminal

if TYPE_CHECKING:
    from edgellm import Generation

CONTINUATION = 256
"""Tokens of a continued text unless the user says otherwise: a text, unlike a reply, may never end."""


@click.command("run", cls=GroupedCommand, short_help="Continue one text, or answer it.")
@click.argument("prompt", required=False)
@click.option("--model", "-m", help="GGUF file or catalog name; by default the catalog's small chat model.")
@click.option("--chat", is_flag=True, help="Send the prompt as a message, in the model's chat format.")
@click.option("--system", help="System message: how the model should behave.  Implies --chat.")
@structured_options
@sampling_options
@model_options
def command(prompt: str | None, model: str | None, chat: bool, system: str | None, **options: Any) -> None:
    """Continue PROMPT, write the text to standard output and exit.

    The model goes on where the prompt ends, for 256 tokens unless --max-tokens says otherwise.  With --chat the prompt
    is a message, and the answer may be as long as the context allows.  Without PROMPT, or with -, it is read from
    standard input.  A text that --schema, --json, --regex, --choice or --grammar asked for and that was cut before it
    was complete ends the command with exit code 1.

    \b
    Examples:
      edgellm run "The capital of France is"
      edgellm run --chat "Write a short poem about rain."
      edgellm run --chat --json "Describe the moon as JSON."
      edgellm run --choice yes --choice no "Is the moon larger than the earth?"
      edgellm run --model model.gguf --system "Answer in one sentence." < question.txt
    """
    shape = structured_arguments(options)
    text = _prompt(prompt)
    allow_any_text()
    with open_model(model, model_arguments(options)) as opened:
        arguments = {**sampling_arguments(options), **shape}
        generation: Generation
        if chat or system is not None:
            messages = [{"role": "system", "content": system}] if system is not None else []
            generation = opened.chat([*messages, {"role": "user", "content": text}], **arguments)
        else:
            generation = opened.generate(text, **{"max_tokens": CONTINUATION, **arguments})
        stream(generation, [])
        if generation.finish_reason == "cancelled":
            raise click.exceptions.Exit(INTERRUPTED)
        if shape and generation.finish_reason == "length":
            raise Failure("the text was cut before it was complete: raise --max-tokens, or ask for less")


def _prompt(argument: str | None) -> str:
    """Return the prompt from the command line or standard input, there without its last line end."""
    if argument not in (None, "-"):
        return argument
    if argument is None and (sys.stdin is None or is_terminal(sys.stdin)):
        raise click.UsageError("Missing PROMPT: give it as an argument, or through a pipe.")
    try:
        return sys.stdin.read().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"Standard input is not {error.encoding} text.") from None
