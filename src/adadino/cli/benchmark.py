"""`adadino benchmark`: pairs per second by the paper's protocol, ours beside the published ones."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from adadino.cli.options import Json, Quiet
from adadino.cli.output import print_json, print_table

if TYPE_CHECKING:
    import torch

    from adadino.benchmark.modes import Mode
    from adadino.benchmark.report import Report

BATCHES = (1, 2, 4, 8, 16, 32, 64)
SIZES = (256, 512, 1024, 2048, 4096)


def command(
    preset: Annotated[str, typer.Option(help="A preset: tiny, vits16, vitb16, vitl16, ...")] = (
        "vitl16"
    ),
    k: Annotated[str, typer.Option(help="FFN chunks to execute; 16 is the base of speed-ups.")] = (
        "16,10,8,6,4"
    ),
    batch: Annotated[
        int | None, typer.Option(min=1, help="Pairs per batch; 16 on a GPU, 1 on a CPU.")
    ] = None,
    size: Annotated[
        int, typer.Option(min=1, max=16_384, help="Side of the input in pixels.")
    ] = 256,
    mode: Annotated[
        str | None,
        typer.Option(
            help="paper, fp32 (the engine in it), fast, fp8 (GPU), int8 (CPU); by default paper, "
            "fast and, on a GPU, fp8."
        ),
    ] = None,
    sweep: Annotated[
        Literal["batch", "size"] | None,
        typer.Option(help="Grow the batch (1 to 64) or the input (256 to 4096 px)."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Where a sweep ends.")] = None,
    warmup: Annotated[
        int | None, typer.Option(min=1, help="Batches off the clock; 5 on a GPU, 1 on a CPU.")
    ] = None,
    measured: Annotated[
        int | None, typer.Option(min=1, help="Batches on the clock; 20 on a GPU, 5 on a CPU.")
    ] = None,
    reference: Annotated[
        bool, typer.Option(help="Measure transformers' encoder in the same run.")
    ] = True,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda.")] = "auto",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder for Markdown, CSV and a plot.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the files of an earlier benchmark.")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Measure throughput, FFN time, GFLOPs and memory with random weights."""
    import torch

    from adadino.benchmark import report
    from adadino.benchmark.report import Timing
    from adadino.benchmark.run import run
    from adadino.config import preset as find_preset
    from adadino.errors import ConfigError
    from adadino.runtime.devices import choose_device

    where = choose_device(device)
    if threads is not None:
        torch.set_num_threads(threads)
    cpu = where.type == "cpu"
    config = find_preset(preset)
    budgets = _numbers("--k", k, config.bscs.chunks)
    modes = _modes(("paper,fast" if cpu else "paper,fast,fp8") if mode is None else mode)
    shapes = _shapes(sweep, batch, size, limit, usual=1 if cpu else 16)
    if output is not None and not overwrite:
        _leave_alone(output)
    protocol = Timing(warmup or (1 if cpu else 5), measured or (5 if cpu else 20))
    result = run(
        config,
        modes=modes,
        budgets=budgets,
        shapes=shapes,
        device=where,
        protocol=protocol,
        reference=reference,
        say=lambda s: None if quiet or json else typer.echo(s, err=True),
    )
    if not (result.rows or result.reference):
        raise ConfigError(f"nothing was measured. {' '.join(result.skipped)}")
    title = f"{preset} on {_name(where)}, {protocol.warmup} + {protocol.measured} batches"
    paths, published = [], preset == "vitl16"
    if output is not None:
        paths = report.write(
            result, output, title=title, published=published, sweep=sweep, note=NOTE
        )
    if not json:
        _show(result, title, paths, published=published)
        return
    print_json(
        {
            "preset": preset,
            "device": _name(where),
            "protocol": dataclasses.asdict(protocol),
            "rows": [
                dataclasses.asdict(row) | {"paper": report.quoted(row) if published else {}}
                for row in result.rows
            ],
            "reference": [dataclasses.asdict(one) for one in result.reference],
            "skipped": result.skipped,
            "outputs": paths,
        }
    )


def _show(result: Report, title: str, paths: list[Path], *, published: bool) -> None:
    """Print a benchmark for people: the columns that have a value, and what was not measured."""
    from adadino.benchmark import report

    header, cells = report.HEADER, report.cells(result, published=published)
    shown = [i for i, _ in enumerate(header) if any(row[i] for row in cells)]
    print_table(
        title, [header[i] for i in shown], [[row[i] for i in shown] for row in cells], note=NOTE
    )
    if result.reference:
        columns = ("transformers' encoder alone", "batch", "px", "pairs/s")
        print_table("The outside reference, same run", columns, report.reference_cells(result))
    for reason in result.skipped:
        typer.echo(f"not measured: {reason}")
    if paths:
        typer.echo(f"saved: {', '.join(str(p) for p in paths)}")


NOTE = (
    "Policy and gather included, data on the device, random weights. paper: fp32, TF32 off, eager; "
    "fp32: the engine in the same arithmetic, not compiled. x eager fp32: over paper's full k. "
    "first call: with compilation, if there is any. The paper's figures: A800, fp32, batch 16."
)


def _shapes(
    sweep: str | None, batch: int | None, size: int, limit: int | None, *, usual: int
) -> list[tuple[int, int]]:
    """(batch, side) of every measurement."""
    from adadino.errors import ConfigError

    if sweep is None:
        if limit is not None:
            raise ConfigError("--limit is where a --sweep ends; there is none.")
        return [(batch or usual, size)]
    swept = BATCHES if sweep == "batch" else SIZES
    some = [one for one in swept if one <= (limit or swept[-1])]
    if not some:
        raise ConfigError(f"--limit is {limit}, must be at least {swept[0]} for --sweep {sweep}.")
    if sweep == "size":  # as many pixels each time, down to one pair
        pixels = (batch or usual) * size**2
        return [(max(1, pixels // side**2), side) for side in some]
    if batch is not None:
        raise ConfigError("--sweep batch grows it itself; leave --batch out, or use --limit.")
    return [(one, size) for one in some]


def _leave_alone(output: Path) -> None:
    from adadino.benchmark import report
    from adadino.errors import ConfigError

    if there := [path for path in report.files(output) if path.exists()]:
        raise ConfigError(f"{there[0]} exists; give another --output, or --overwrite.")


def _numbers(option: str, text: str, most: int) -> list[int]:
    from adadino.errors import ConfigError

    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"{option} is {text!r}, must be numbers: 16,6.") from error
    if wrong := [n for n in numbers if not 1 <= n <= most]:
        raise ConfigError(f"{option} has {wrong[0]}, must be between 1 and {most}.")
    return numbers


def _modes(text: str) -> list[Mode]:
    from adadino.benchmark.modes import MODES
    from adadino.errors import ConfigError

    asked = text.split(",")
    if wrong := [one for one in asked if one not in MODES]:
        raise ConfigError(f"--mode has {wrong[0]!r}; there are {', '.join(MODES)}.")
    return [one for one in MODES if one in asked]


def _name(device: torch.device) -> str:
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "cpu":
        threads = torch.get_num_threads()
        return f"CPU, {threads} thread{'s' * (threads > 1)}"
    return device.type
