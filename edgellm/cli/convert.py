"""``edgellm convert``: a model's folder becomes one GGUF file."""

from __future__ import annotations

from typing import Any

import click

from edgellm.cli.ui import allow_any_text, escape, say, size


@click.command("convert", short_help="Write a model's folder as a GGUF file.")
@click.argument("source")
@click.option("-o", "--output", required=True, metavar="OUT.gguf", help="The file to write.")
@click.option(
    "--type",
    "kind",
    type=click.Choice(["f16", "f32", "q8_0"]),
    default="f16",
    show_default=True,
    help="How matrices are stored.",
)
@click.option("--name", help="Name of the model in the file; by default the folder's.")
def command(source: str, output: str, kind: Any, name: str | None) -> None:
    """Convert SOURCE, a folder with config.json, safetensors and a tokenizer, to GGUF.

    Encoders of the types bert and nomic_bert can be converted so far.

    \b
    Examples:
      edgellm convert all-MiniLM-L6-v2 -o all-minilm-l6-v2.gguf
      edgellm convert all-MiniLM-L6-v2 -o all-minilm-l6-v2-q8_0.gguf --type q8_0
    """
    import edgellm

    allow_any_text()
    path = edgellm.convert(source, output, type=kind, name=name)
    say(f"{escape(str(path))}  {size(path.stat().st_size)}")
