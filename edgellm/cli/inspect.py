"""``edgellm inspect``: what is in a model file, and whether it can run here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from edgellm.cli.ui import allow_any_text, columns, count, escape, heading, plural, shorten, size


@click.command("inspect", short_help="Show what is in a model file.")
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object, long values shortened as well.")
@click.option("--check", is_flag=True, help="Only say whether the model can run here, and what is missing.")
def command(file: str, as_json: bool, check: bool) -> None:
    """Show metadata, tensors and memory needs of FILE, a GGUF file or a model that was fetched.

    Only the head of the file is read.  With --check the exit code is 1 if the model cannot run here.

    \b
    Examples:
      edgellm inspect model.gguf
      edgellm inspect --check model.gguf
      edgellm inspect --json model.gguf | jq .metadata
    """
    from edgellm import catalog, inspection

    allow_any_text()
    path = catalog.resolve(file, download=False)
    if not check:
        report = inspection.describe(path)
        if as_json:
            click.echo(json.dumps(report, indent=2))
        else:
            _show(report)
        return
    found = inspection.problems(path)
    if as_json:
        click.echo(json.dumps({"runs": not found, "problems": found}, indent=2))
    else:
        click.echo("This model can run here." if not found else "This model cannot run here:")
        for line in found:
            click.echo(f"  {escape(line)}")
    if found:
        raise click.exceptions.Exit(1)


def _show(report: dict[str, Any]) -> None:
    heading(f"{escape(report['file'])}  {size(report['bytes'])}")
    for title, lines in (
        (f"Metadata: {plural(len(report['metadata']), 'key')}", _metadata(report)),
        (f"Tensors: {len(report['tensors'])}", _tensors(report["tensors"])),
        ("Tensor types", _types(report["tensor_types"])),
        ("Memory", _memory(report["memory"])),
    ):
        click.echo()
        heading(title)
        for line in lines:
            click.echo(line)
    if report["warnings"]:
        click.echo()
        heading("Warnings")
        for line in report["warnings"]:
            click.echo(f"  {escape(line)}")


def _metadata(report: dict[str, Any]) -> list[str]:
    rows = []
    for key, value in report["metadata"].items():
        kind, text = report["metadata_types"][key], str(value)
        if isinstance(value, dict):
            kind = f"{kind} × {value['count']}"
            more = ", …" if value["count"] > len(value["first"]) else ""
            text = ", ".join(shorten(str(item), 20) for item in value["first"]) + more
        rows.append((escape(key), kind, escape(text)))
    return columns(rows, "<<<")


def _tensors(tensors: list[dict[str, Any]]) -> list[str]:
    rows = []
    for tensor in tensors:
        shape = " × ".join(map(str, tensor["shape"])) or "scalar"
        n_bytes = size(tensor["bytes"]) if tensor["bytes"] else "empty"
        rows.append((escape(tensor["name"]), shape, tensor["type"], n_bytes))
    return columns(rows, "<<<>")


def _types(types: dict[str, dict[str, int]]) -> list[str]:
    rows = [
        (name, plural(entry["tensors"], "tensor"), f"{count(entry['parameters'])} parameters", size(entry["bytes"]))
        for name, entry in types.items()
    ]
    return columns(rows, "<>>>")


def _memory(memory: dict[str, Any]) -> Iterator[str]:
    rows = [("weights", size(memory["weights_bytes"]))]
    if "error" not in memory:
        rows.append(("keys and values, each token", size(memory["kv_bytes_per_token"])))
        if memory["state_bytes"]:
            rows.append(("recurrent states", size(memory["state_bytes"])))
        rows += [(f"all with n_ctx {entry['n_ctx']}", size(entry["total_bytes"])) for entry in memory["contexts"]]
    yield from columns(rows, "<>")
    if "error" in memory:
        yield f"  no estimate: {escape(memory['error'])}"
