"""``edgellm chat``: a conversation at the terminal or through a pipe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from edgellm.cli.conversation import Conversation
from edgellm.cli.errors import Failure
from edgellm.cli.groups import GroupedCommand
from edgellm.cli.loading import has_chat_format, open_model
from edgellm.cli.options import model_arguments, model_options, sampling_arguments, sampling_options
from edgellm.cli.prompt import open_prompt
from edgellm.cli.repl import Repl
from edgellm.cli.ui import allow_any_text, count, escape, plural, say

if TYPE_CHECKING:
    from edgellm import ModelInfo


@click.command("chat", cls=GroupedCommand, short_help="Talk with a model.")
@click.argument("model", required=False)
@click.option("--system", help="System message: how the model should behave.")
@sampling_options
@model_options
@click.pass_context
def command(ctx: click.Context, /, model: str | None, system: str | None, **options: Any) -> None:
    """Talk with MODEL, a GGUF file or a catalog name; by default the catalog's small chat model.

    Answers go to standard output, everything else to standard error.  Through a pipe each line is a message.
    In the chat, /help lists the commands.

    \b
    Examples:
      edgellm chat
      edgellm chat model.gguf --system "You are a pirate." --temperature 0.7
      printf 'Hello!\\nWhat did I say?\\n' | edgellm chat
    """
    allow_any_text()
    with open_model(model, model_arguments(options)) as opened:
        if not has_chat_format(opened):
            raise Failure(f"{opened.info.name} has no chat format: use edgellm run to continue a text with it")
        prompt = open_prompt()
        if prompt.interactive:
            _welcome(opened.info)
        ctx.exit(Repl(opened, Conversation(system, settings=sampling_arguments(options)), prompt).run())


def _welcome(info: ModelInfo) -> None:
    model = (
        f"{escape(info.name)} · {count(info.n_params)} parameters, {info.quantization} · context {info.n_ctx} tokens"
    )
    machine = " ".join(filter(None, (info.backend, info.isa)))
    say(f"{model} · {machine}, {plural(info.threads, 'thread')}", dim=True)
    say("/help lists the commands, Ctrl-D leaves.", dim=True)
