"""``edgellm inspect``: what is in a model file, and whether it can run here."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from edgellm.cli.errors import describe
from edgellm.cli.ui import allow_any_text, columns, count, escape, heading, plural, shorten, size
from edgellm.errors import EdgeLLMError

if TYPE_CHECKING:
    from edgellm.gguf import GGUFArray, ModelFile, TensorInfo

TEXT_LIMIT = 80
ARRAY_ITEMS = 5


@click.command("inspect", short_help="Show what is in a model file.")
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object, long values shortened as well.")
@click.option("--check", is_flag=True, help="Only say whether the model can run here, and what is missing.")
def command(file: str, as_json: bool, check: bool) -> None:
    """Show metadata, tensors and memory needs of FILE, a GGUF file or a catalog name.

    Only the head of the file is read.  With --check the exit code is 1 if the model cannot run here.

    \b
    Examples:
      edgellm inspect model.gguf
      edgellm inspect --check model.gguf
      edgellm inspect --json model.gguf | jq .metadata
    """
    from edgellm import catalog
    from edgellm.gguf import open_model
    from edgellm.inspection import problems

    allow_any_text()
    with open_model(catalog.resolve(file, download=False)) as opened:
        found = problems(opened) if check else None
        if as_json:
            report = _report(opened) if found is None else {"runs": not found, "problems": found}
            click.echo(json.dumps(report, indent=2))
        elif found is None:
            _show(opened)
        else:
            click.echo("This model can run here." if not found else "This model cannot run here:")
            for line in found:
                click.echo(f"  {escape(line)}")
    if found:
        raise click.exceptions.Exit(1)


def _show(file: ModelFile) -> None:
    heading(f"{file.name}  {size(file.nbytes)}")
    for title, lines in (
        (f"Metadata, {len(file.metadata)} keys", _metadata_lines(file)),
        (f"Tensors, {len(file.tensors)}", _tensor_lines(file)),
        ("Types", _type_lines(file)),
        ("Memory", _memory_lines(file)),
    ):
        click.echo()
        heading(title)
        for line in lines:
            click.echo(line)


def _metadata_lines(file: ModelFile) -> list[str]:
    rows = []
    for key in file.metadata:
        value, kind = _value(file, key), str(file.metadata.type_of(key))
        if isinstance(value, dict):
            more = ", …" if value["count"] > len(value["first"]) else ""
            items = (shorten(str(item), 20) for item in value["first"])
            rows.append((escape(key), f"{kind} × {value['count']}", escape(", ".join(items) + more)))
        else:
            rows.append((escape(key), kind, escape(str(value))))
    return columns(rows, "<<<")


def _tensor_lines(file: ModelFile) -> list[str]:
    rows = [
        (escape(t.name), _shape(t), str(t.dtype), size(t.nbytes) if t.nbytes else "empty")
        for t in file.tensors.values()
    ]
    return columns(rows, "<<<>")


def _type_lines(file: ModelFile) -> list[str]:
    rows = [
        (name, plural(entry["tensors"], "tensor"), f"{count(entry['parameters'])} parameters", size(entry["bytes"]))
        for name, entry in _types(file).items()
    ]
    return columns(rows, "<>>>")


def _memory_lines(file: ModelFile) -> Iterator[str]:
    memory = _memory(file)
    yield f"  weights               {size(memory['weights_bytes'])}"
    if "error" in memory:
        yield f"  (no estimate: {escape(memory['error'])})"
        return
    yield f"  keys and values       {size(memory['kv_bytes_per_token'])} per token, as f16"
    for entry in memory["contexts"]:
        yield f"  with n_ctx {entry['n_ctx']:>8}   {size(entry['total_bytes'])}"


def _report(file: ModelFile) -> dict[str, Any]:
    return {
        "file": file.name,
        "bytes": file.nbytes,
        "metadata": {key: _value(file, key) for key in file.metadata},
        "tensors": [
            {"name": t.name, "shape": list(t.shape), "type": str(t.dtype), "bytes": t.nbytes}
            for t in file.tensors.values()
        ],
        "types": _types(file),
        "memory": _memory(file),
    }


def _value(file: ModelFile, key: str) -> Any:
    """Return a metadata value as JSON has it: long texts shortened, arrays as type, count and first elements."""
    try:
        value = file.metadata[key]
        if isinstance(value, (str, bool, int, float)):
            return _scalar(value)
        return _array(value)
    except EdgeLLMError as error:  # Text that is not UTF-8: everything else can still be shown.
        return f"({describe(error)})"


def _array(array: GGUFArray) -> dict[str, Any]:
    return {"type": str(array.type), "count": len(array), "first": [_scalar(item) for item in array[:ARRAY_ITEMS]]}


def _scalar(value: Any) -> Any:
    if isinstance(value, str) and len(value) > TEXT_LIMIT:
        return f"{shorten(value, TEXT_LIMIT)} ({len(value)} characters)"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such numbers.
    return value


def _shape(tensor: TensorInfo) -> str:
    return " × ".join(map(str, tensor.shape)) or "scalar"


def _types(file: ModelFile) -> dict[str, dict[str, int]]:
    tensors, parameters, n_bytes = Counter[str](), Counter[str](), Counter[str]()
    for t in file.tensors.values():
        tensors[str(t.dtype)] += 1
        parameters[str(t.dtype)] += t.n_elements
        n_bytes[str(t.dtype)] += t.nbytes
    return {
        name: {"tensors": tensors[name], "parameters": parameters[name], "bytes": total}
        for name, total in n_bytes.most_common()
    }


def _memory(file: ModelFile) -> dict[str, Any]:
    from edgellm.inspection import memory_plans

    memory: dict[str, Any] = {"weights_bytes": sum(t.nbytes for t in file.tensors.values())}
    try:
        plans = memory_plans(file)
    except EdgeLLMError as error:
        return {**memory, "error": describe(error)}
    return {
        **memory,
        "kv_bytes_per_token": plans[0].kv_per_token,
        "contexts": [{"n_ctx": p.n_ctx, "kv_bytes": p.kv, "total_bytes": p.total} for p in plans],
    }
