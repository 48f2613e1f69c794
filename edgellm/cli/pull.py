"""``edgellm pull``: fetch a model of the catalog."""

from __future__ import annotations

import click

from edgellm.cli.progress import Download


@click.command("pull", short_help="Fetch a model.")
@click.argument("name")
@click.option("--force", is_flag=True, help="Fetch it again, even if it is here already.")
def command(name: str, force: bool) -> None:
    """Fetch NAME, a model of the catalog or hf:OWNER/REPO/FILE, and write its path to standard output.

    \b
    Examples:
      edgellm pull smollm2-135m-instruct
      edgellm run --model "$(edgellm pull smollm2-135m-instruct)" "Hello"
    """
    from edgellm import catalog

    with Download(name) as bar:
        path = catalog.pull(name, progress=bar, force=force)
    click.echo(path)
