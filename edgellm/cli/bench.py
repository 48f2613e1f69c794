"""``edgellm bench``: speed and memory of a model on this machine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

import click

from edgellm.cli.loading import find_model
from edgellm.cli.options import BACKEND, KV_TYPE
from edgellm.cli.ui import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgellm.against import Ratio
    from edgellm.benchmark import Benchmark


@click.command("bench", short_help="Measure a model's speed here.")
@click.argument("model")
@click.option("--prompt", default=512, show_default=True, help="Tokens of the prompt whose processing is timed.")
@click.option("--generate", default=64, show_default=True, help="Tokens whose generation is timed.")
@click.option("--threads", type=int, help="CPU threads; by default one for each physical core at hand.")
@click.option("--repeat", default=3, show_default=True, help="Measure so often and take the median.")
@click.option("--depth", type=int, help="Generate after this many tokens of context.")
@click.option("--batch", type=int, help="Also generate this many texts at once.")
@click.option("--backend", type=BACKEND, default="auto", show_default=True, help="What computes.")
@click.option("--kv-type", type=KV_TYPE, default="f16", show_default=True, help="How keys and values are kept.")
@click.option("--against", type=click.Choice(["llama.cpp"]), help="Measure this too, in turns, and show the ratio.")
@click.option("--json", "as_json", is_flag=True, help="Write the numbers as one JSON object.")
def command(
    model: str,
    prompt: int,
    generate: int,
    threads: int | None,
    repeat: int,
    depth: int | None,
    batch: int | None,
    backend: Literal["auto", "native", "numba", "reference"],
    kv_type: Literal["f16", "q8_0", "f32"],
    against: str | None,
    as_json: bool,
) -> None:
    """Measure the speed of MODEL, a GGUF file or a catalog name.

    Prefill is the processing of a prompt, decode the generation of one token after the other.  Decoding reads nearly
    all weights for every token, so that reading memory is its limit; the table shows how near it comes.

    \b
    Examples:
      edgellm bench model.gguf
      edgellm bench model.gguf --threads 2 --batch 8
      edgellm bench model.gguf --json > speed.json
      edgellm bench model.gguf --threads 2 --against llama.cpp
    """
    if against is not None:
        from edgellm.against import compare

        path = find_model(model)
        ratios = compare(
            path,
            prompt=prompt,
            generate=generate,
            threads=threads,
            repeat=repeat,
            depth=depth or 0,
            batch=batch,
            kv_type=kv_type,
        )
        _show_ratios(ratios, as_json)
        return
    from edgellm.benchmark import run_benchmark

    result = run_benchmark(
        find_model(model),
        prompt=prompt,
        generate=generate,
        threads=threads,
        repeat=repeat,
        depth=depth,
        batch=batch,
        backend=backend,
        kv_type=kv_type,
    )
    if as_json:
        click.echo(json.dumps(result.as_dict()))
    else:
        _show(result, prompt, generate)


def _show_ratios(ratios: Sequence[Ratio], as_json: bool) -> None:
    from dataclasses import asdict

    if as_json:
        click.echo(json.dumps([{**asdict(r), "ratio": r.ratio} for r in ratios]))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title="tokens/s")
    for name in ("", "EdgeLLM", "llama.cpp", "ratio"):
        table.add_column(name, justify="right" if name else "left")
    for r in ratios:
        table.add_row(r.name, f"{r.edgellm:.1f}", f"{r.llama_cpp:.1f}", f"{r.ratio:.2f}")
    Console(markup=False, highlight=False).print(table)


def _show(result: Benchmark, prompt: int, generate: int) -> None:
    from rich.console import Console
    from rich.table import Table

    after = f" after {result.depth}" if result.depth else ""
    share = f"{result.decode_gbps:.1f} of {result.read_gbps:.1f} GB/s ({result.decode_gbps / result.read_gbps:.0%})"
    memory = "unknown" if result.peak_rss_mb is None else f"{result.peak_rss_mb:.0f} MB"
    rows = [
        (f"prefill, {prompt} tokens", f"{result.prefill_tps:.1f} tokens/s"),
        (f"decode, {generate} tokens{after}", f"{result.decode_tps:.1f} tokens/s"),
        ("decode, weights read", share),
        ("load", f"{result.load_s:.3f} s"),
        ("first token", f"{result.first_token_s:.3f} s"),
        ("peak memory", memory),
    ]
    if result.batch_tps is not None:
        rows.insert(2, (f"decode, {result.batch} at once{after}", f"{result.batch_tps:.1f} tokens/s"))
    title = ", ".join(filter(None, (plural(result.threads, "thread"), result.isa)))
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for row in rows:
        table.add_row(*row)
    Console(markup=False, highlight=False).print(table)
