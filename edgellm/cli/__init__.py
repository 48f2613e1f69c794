"""The ``edgellm`` command: one module per verb, imported when the verb is asked for."""

from __future__ import annotations

import importlib

import click

from edgellm.cli.errors import reported

__all__ = ["main"]

VERBS = ("chat", "run", "inspect", "convert", "template", "bench", "pull", "list", "doctor")


class _Verbs(click.Group):
    """Finds a verb in the module of its name and turns errors into one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        found: click.Command = importlib.import_module(f"edgellm.cli.{cmd_name}").command
        return found

    def invoke(self, ctx: click.Context) -> object:
        with reported():
            return super().invoke(ctx)


def _print_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        import edgellm

        click.echo(f"edgellm {edgellm.__version__}")
        ctx.exit()


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version."
)
def main() -> None:
    """Run GGUF language models on this machine.

    \b
    Start here:
      edgellm chat                     talk with a small model, fetched once
      edgellm run "The capital of France is"
      edgellm inspect model.gguf       see what is in a file
    """
