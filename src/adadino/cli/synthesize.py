"""`adadino synthesize`: pairs of the synthetic world as a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adadino.cli.output import Json, Quiet, print_json, progress


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
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Write into a folder that is not empty.")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write procedural pairs with exact change masks; no data has to be downloaded."""
    from adadino.data.synthetic import World, write_dataset
    from adadino.errors import DataError

    if dest.exists() and any(dest.iterdir()) and not overwrite:
        raise DataError(f"{dest} is not empty; choose another folder, or --overwrite.")
    splits = {name: n for name, n in (("train", train), ("val", val), ("test", test)) if n}
    world = World(nuisance=nuisance)
    with progress("synthesizing", quiet=quiet or json) as report:
        paths = write_dataset(dest, splits, seed=seed, size=size, world=world, progress=report)
    if json:
        print_json({"outputs": [dest / name for name in splits], "pairs": len(paths)})
        return
    typer.echo(f"{len(paths)} pairs of {size} x {size} pixels in {dest}")
    typer.echo(f"next: adadino train --preset tiny --model.backbone.weights tiny --data {dest}")
