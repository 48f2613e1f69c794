"""``edgellm list``: the models of the catalog, and which are here."""

from __future__ import annotations

import click

from edgellm.cli.ui import allow_any_text, columns, escape, size


@click.command("list", short_help="List the models of the catalog.")
def command() -> None:
    """List the models of the catalog, and everything else that was fetched; a path means that it is here.

    \b
    Example:
      edgellm list
    """
    from edgellm import catalog

    allow_any_text()
    rows = [("NAME", "TYPE", "SIZE", "LICENCE", "PATH")]
    here = {model.name: model for model in catalog.cached()}
    for entry in catalog.entries():
        model = here.pop(entry.name, None)
        path = escape(str(model.path)) if model else "-"
        rows.append((entry.name, entry.quantization, size(entry.bytes), entry.licence, path))
    for model in here.values():
        rows.append((escape(model.name), "-", size(model.bytes), "-", escape(str(model.path))))
    for line in columns(rows, "<<><<"):
        click.echo(line.removeprefix("  "))
