"""`adadino benchmark`: pairs per second by the paper's protocol, ours beside the published ones."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from adadino.cli.output import Json, Quiet, print_json, print_table

if TYPE_CHECKING:
    import torch

    from adadino.engine.benchmark import Mode

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
    limit: Annotated[int | None, typer.Option(help="Where a sweep ends.")] = None,
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
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Measure throughput, FFN time, GFLOPs and memory with random weights."""
    import torch

    from adadino.config import preset as find_preset
    from adadino.devices import choose_device
    from adadino.engine import benchmark, report

    where = choose_device(device)
    if threads is not None:
        torch.set_num_threads(threads)
    cpu = where.type == "cpu"
    config = find_preset(preset)
    budgets = _numbers("--k", k, config.bscs.chunks)
    modes = _modes(mode or ("paper,fast" if cpu else "paper,fast,fp8"))
    batch = batch or (1 if cpu else 16)
    shapes = [(batch, size)]
    if sweep == "batch":
        shapes = [(b, size) for b in BATCHES if b <= (limit or BATCHES[-1])]
    elif sweep == "size":
        pixels = batch * size**2
        sides = [s for s in SIZES if s <= (limit or SIZES[-1])]
        shapes = [(max(1, pixels // side**2), side) for side in sides]
    protocol = benchmark.Protocol(warmup or (1 if cpu else 5), measured or (5 if cpu else 20))
    result = benchmark.run(
        config,
        modes=modes,
        budgets=budgets,
        shapes=shapes,
        device=where,
        protocol=protocol,
        reference=reference,
        say=lambda s: None if quiet or json else typer.echo(s, err=True),
    )
    title = f"{preset} on {_name(where)}, {protocol.warmup} + {protocol.measured} batches"
    paths = []
    if output is not None:
        paths = report.write(result, output, title=title, published=preset == "vitl16", sweep=sweep)
    if json:
        print_json(
            {
                "preset": preset,
                "device": _name(where),
                "protocol": dataclasses.asdict(protocol),
                "rows": [dataclasses.asdict(row) for row in result.rows],
                "reference": [dataclasses.asdict(one) for one in result.reference],
                "skipped": result.skipped,
                "outputs": paths,
            }
        )
        return
    header, cells = report.HEADER, report.cells(result, published=preset == "vitl16")
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
    from adadino.engine.benchmark import MODES
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
