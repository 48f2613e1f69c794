"""``edgellm doctor``: what this machine and this installation can do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from edgellm.cli.ui import allow_any_text, columns, size


@click.command("doctor", short_help="Show what this machine can do.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object.")
def command(as_json: bool) -> None:
    """Show the machine, the versions, and whether the fast backend works here: put it into bug reports.

    \b
    Examples:
      edgellm doctor
      EDGELLM_ISA=avx2 edgellm doctor --json
    """
    from edgellm.diagnostics import diagnose

    allow_any_text()
    report = diagnose()
    if as_json:
        click.echo(json.dumps(report, indent=2))
        return
    for line in columns(list(_rows(report)), "<<"):
        click.echo(line.removeprefix("  "))


def _rows(report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    cpu, memory = report["cpu"], report["memory_available_bytes"]
    yield "edgellm", report["edgellm"]
    yield "python", f"{report['python']} on {report['platform']}"
    for name, package in report["packages"].items():
        hint = f" (optional: pip install edgellm[{package['extra']}])" if package["extra"] else ""
        yield name, package["version"] or f"not installed{hint}"
    yield "cpu", cpu["name"]
    yield "cores", f"{cpu['physical_cores']} physical, {cpu['logical_cpus']} logical"
    yield "threads", f"{cpu['default_threads']} by default"
    yield "instruction set", cpu["isa"] or "unknown without the native backend"
    if cpu["available"]:
        yield "available", " ".join(cpu["available"])
    if cpu["features"]:
        yield "features", " ".join(cpu["features"])
    yield "memory", "unknown" if memory is None else f"{size(memory)} available"
    for name, backend in report["backends"].items():
        yield f"{name} backend", backend["problem"] or "ok"
    yield (
        "cache",
        report["cache_dir"]["path"] + (f" ({problem})" if (problem := report["cache_dir"]["problem"]) else ""),
    )
    for name, value in report["environment"].items():
        yield name, value
