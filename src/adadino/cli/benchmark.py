"""`adadino benchmark`: pairs per second by the paper's protocol, ours beside the published ones."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adadino.benchmark.options import BenchmarkOptions
from adadino.cli.options import Device, Json, Overwrite, Quiet, takes_dataclasses
from adadino.cli.output import print_json, print_table

if TYPE_CHECKING:
    import torch

    from adadino.benchmark.report import Report


@takes_dataclasses()
def command(
    *,
    options: BenchmarkOptions,
    device: Device = "auto",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder for Markdown, CSV and a plot.")
    ] = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Measure throughput, FFN time, GFLOPs and memory with random weights."""
    from adadino.config import preset

    config = preset(options.preset)
    budgets = options.budgets(config.bscs.chunks)
    import torch

    from adadino.benchmark import report
    from adadino.benchmark.run import run
    from adadino.errors import ConfigError
    from adadino.runtime.devices import choose_device

    where = choose_device(device)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    cpu = where.type == "cpu"
    timing = options.timing(cpu=cpu)
    modes, shapes = options.modes(cpu=cpu), options.shapes(cpu=cpu)
    if output is not None and not overwrite:
        report.refuse_existing(output)
    result = run(
        config,
        modes=modes,
        budgets=budgets,
        shapes=shapes,
        device=where,
        protocol=timing,
        reference=options.reference,
        say=lambda s: None if quiet or json else typer.echo(s, err=True),
    )
    if not (result.rows or result.reference):
        raise ConfigError(f"nothing was measured. {' '.join(result.skipped)}")
    title = f"{options.preset} on {_name(where)}, {timing.warmup} + {timing.measured} batches"
    published = options.preset == "vitl16"
    paths = []
    if output is not None:
        paths = report.write(result, output, title=title, published=published, sweep=options.sweep)
    if json:
        said: dict[str, Any] = {"preset": options.preset, "device": _name(where)}
        said |= {"protocol": dataclasses.asdict(timing), **report.as_dict(result, published)}
        print_json(said | {"outputs": paths})
    else:
        _show(result, title, paths, published=published)


def _show(result: Report, title: str, paths: list[Path], *, published: bool) -> None:
    """Print a benchmark for people: the columns that have a value, and what was not measured."""
    from adadino.benchmark import report

    header, cells = report.HEADER, report.cells(result, published=published)
    shown = [i for i, _ in enumerate(header) if any(row[i] for row in cells)]
    body = [[row[i] for i in shown] for row in cells]
    print_table(title, [header[i] for i in shown], body, note=report.NOTE)
    if result.reference:
        columns = ("transformers' encoder alone", "batch", "px", "pairs/s")
        print_table("The outside reference, same run", columns, report.reference_cells(result))
    for reason in result.skipped:
        typer.echo(f"not measured: {reason}")
    if paths:
        typer.echo(f"saved: {', '.join(str(p) for p in paths)}")


def _name(device: torch.device) -> str:
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "cpu":
        threads = torch.get_num_threads()
        return f"CPU, {threads} thread{'s' * (threads > 1)}"
    return device.type
