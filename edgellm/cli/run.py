"""``edgellm run``: one prompt, one answer."""

from __future__ import annotations

import sys
from typing import Any

import click

from edgellm.cli.errors import INTERRUPTED
from edgellm.cli.loading import has_chat_format, open_model
from edgellm.cli.options import model_arguments, model_options, sampling_arguments, sampling_options
from edgellm.cli.reply import stream
from edgellm.cli.ui import allow_any_text, is_terminal


@click.command("run", short_help="Answer one prompt and leave.")
@click.argument("prompt", required=False)
@click.option("--model", "-m", help="GGUF file or catalog name; by default the catalog's small chat model.")
@click.option("--system", help="System message: how the model should behave.")
@click.option("--raw", is_flag=True, help="Continue the prompt as plain text, without the model's chat format.")
@sampling_options
@model_options
def command(prompt: str | None, model: str | None, system: str | None, raw: bool, **options: Any) -> None:
    """Answer PROMPT on standard output and leave.

    The prompt is sent as a chat message if the model has a chat format, since such models expect one: ask or tell it
    something.  To have a text continued, use --raw; models without a chat format always do that.  Without PROMPT, or
    with -, it is read from standard input.

    \b
    Examples:
      edgellm run "Write a short poem about rain."
      edgellm run --raw --temperature 0 --max-tokens 20 "The capital of France is"
      edgellm run --model model.gguf --system "Answer in one sentence." < question.txt
    """
    if raw and system is not None:
        raise click.UsageError("--system needs the chat format that --raw turns off.")
    text = _prompt(prompt)
    allow_any_text()
    with open_model(model, model_arguments(options)) as opened:
        arguments = sampling_arguments(options)
        if raw or (system is None and not has_chat_format(opened)):
            generation = opened.generate(text, **arguments)
        else:
            messages = [{"role": "system", "content": system}] if system is not None else []
            generation = opened.chat([*messages, {"role": "user", "content": text}], **arguments)
        stream(generation, [])
        if generation.finish_reason == "cancelled":
            raise click.exceptions.Exit(INTERRUPTED)


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
