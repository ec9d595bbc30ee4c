"""`adadino synthesize`: pairs of the synthetic world as a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adadino.cli.options import Json, Quiet
from adadino.cli.output import print_json, progress


def command(
    dest: Annotated[Path, typer.Argument(help="Where train/, val/ and test/ go.")],
    train: Annotated[int, typer.Option(min=0, help="Training pairs.")] = 200,
    val: Annotated[int, typer.Option(min=0, help="Validation pairs.")] = 40,
    test: Annotated[int, typer.Option(min=0, help="Test pairs.")] = 40,
    size: Annotated[int, typer.Option(min=16, max=4096, help="Side of a pair in pixels.")] = 256,
    seed: Annotated[int, typer.Option(min=0, help="Another seed is another world.")] = 0,
    nuisance: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Strength of season, sun, haze, noise, shift.")
    ] = 1.0,
    geotiff: Annotated[
        bool, typer.Option("--geotiff", help="GeoTIFFs with a CRS, for predict; else PNG.")
    ] = False,
    classes: Annotated[
        bool, typer.Option("--classes", help="Also write what stood where at both dates.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Remove train/, val/ and test/ in DEST first.")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write procedural pairs with exact change masks, no download needed; run again to resume."""
    from adadino.data.synthetic import World, synthesize

    splits = {"train": train, "val": val, "test": test}
    with progress("synthesizing", quiet=quiet or json) as report:
        made = synthesize(
            dest,
            splits,
            seed=seed,
            size=size,
            world=World(nuisance=nuisance),
            geotiff=geotiff,
            classes=classes,
            overwrite=overwrite,
            progress=report,
        )
    pairs = sum(splits.values())
    if json:
        print_json({"outputs": [dest / name for name, n in splits.items() if n], "pairs": pairs})
        return
    there = "" if made else ", already there: nothing was made"
    typer.echo(f"{pairs} pairs of {size} x {size} pixels in {dest}{there}")
    if train and val:
        how = "--init tiny --classes" if classes else "--preset tiny --model.backbone.weights tiny"
        typer.echo(f"next: adadino train {how} --data {dest}")
    else:
        typer.echo("adadino train needs a train and a val split: for it, give --train and --val.")
