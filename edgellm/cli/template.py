"""``edgellm template``: what a chat template can do, and what it makes of a conversation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from edgellm.cli.ui import CONTROL, allow_any_text, columns, escape, heading
from edgellm.errors import ArgumentError


@click.command("template", short_help="Show and check a chat template.")
@click.argument("file")
@click.option("--messages", "messages_file", type=click.Path(path_type=Path), help="A JSON list of messages to render.")
@click.option("--tools", "tools_file", type=click.Path(path_type=Path), help="A JSON list of schemas of tools.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A variable; VALUE is JSON, or else text.")
@click.option("--explain", is_flag=True, help="Show each token of the prompt and where it comes from.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON list, an object for each template.")
def command(
    file: str,
    messages_file: Path | None,
    tools_file: Path | None,
    settings: tuple[str, ...],
    explain: bool,
    as_json: bool,
) -> None:
    """Try the chat template in FILE, a GGUF file, a model that was fetched, or a text file of its own.

    The exit code is 1 if the conversation cannot be rendered.

    \b
    Examples:
      edgellm template model.gguf
      edgellm template template.jinja --set enable_thinking=false
      edgellm template model.gguf --messages chat.json --explain
    """
    from edgellm import catalog, templates

    allow_any_text()
    path = Path(file) if Path(file).is_file() else catalog.resolve(file, download=False)
    reports = templates.describe(
        path,
        _read(messages_file),
        tokens=explain,
        tools=_read(tools_file),
        template_args=dict(map(_setting, settings)),
    )
    if as_json:
        click.echo(json.dumps(reports, indent=2, ensure_ascii=False))
    else:
        for i, report in enumerate(reports):
            if i:
                click.echo()
            _show(report, explain)
    if any("problem" in report for report in reports):
        raise click.exceptions.Exit(1)


def _read(path: Path | None) -> Any:
    if path is None:
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"{path} is not JSON: {error}") from None


def _setting(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise ArgumentError(f"--set wants NAME=VALUE, not {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _show(report: dict[str, Any], explain: bool) -> None:
    heading(f"Template: {escape(report['name'])}, {report['characters']} characters")
    for line in columns(list(_facts(report)), "<<"):
        click.echo(line)
    click.echo()
    if "problem" in report:
        heading("This conversation cannot be rendered")
        click.echo(f"  {CONTROL.sub('', report['problem'])}")
        return
    heading("Prompt")
    text = report["tokens"] if explain and "tokens" in report else report["prompt"]
    click.echo(CONTROL.sub("", text))


def _facts(report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if report["error"]:
        yield "fails", escape(report["error"])
        return
    places = {"own": "has a place of its own", "merged": "goes in front of the user's message"}
    calls = {"object": "written, arguments as an object", "text": "written, arguments as JSON text"}
    yield "roles", ", ".join(report["roles"]) or "none"
    yield "system message", places[report["system"]]
    yield "tools", "listed in the prompt" if report["lists_tools"] else "not listed; the system message describes them"
    yield "tool calls", calls.get(report["calls"], "not written") + (", several" if report["several_calls"] else "")
    yield "tool results", "written" if report["results"] else "not written"
    yield "reply format", report["reply_format"]
    yield "reasoning", ", ".join(report["switches"]) or "no switch"
    yield "documents", "read" if report["documents"] else "not read"
    yield "a reply begins", f'"{escape(report["opening"])}"'
    if report["variables"]:
        yield "other variables", escape(", ".join(report["variables"]))
    for note in report["notes"]:
        yield "note", escape(note)
