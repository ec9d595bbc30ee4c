"""`adadino adapt`: a trained model, fitted to a few labelled tiles or to a judged map."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adadino.cli.options import Bands, Device, Json, Overwrite, Quiet, Scale, takes_dataclasses
from adadino.cli.output import print_json, progress
from adadino.cli.scene import read_colours
from adadino.training.adapt.options import AdaptOptions


@takes_dataclasses()
def command(
    *,
    model: Annotated[
        str, typer.Argument(help="The trained model: tiny, a checkpoint folder, a hub id.")
    ] = "tiny",
    data: Annotated[
        Path | None, typer.Option(help="Labelled tiles: a folder with A, B and label.")
    ] = None,
    judged: Annotated[
        Path | None, typer.Option(help="A judged map instead: a review folder, or its .gpkg.")
    ] = None,
    before: Annotated[str | None, typer.Option(help="The first date of the judged map.")] = None,
    after: Annotated[str | None, typer.Option(help="The second date of the judged map.")] = None,
    bands: Bands = None,
    scale: Scale = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="The new model's folder.")],
    replay_data: Annotated[
        Path | None, typer.Option(help="Pairs of your own to train along, against forgetting.")
    ] = None,
    options: AdaptOptions,
    device: Device = "cpu",
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Fit a trained model to your labels; keep the old one if the new one is not better.

    The same command goes on after an interruption.
    """
    if (data is None) == (judged is None):
        raise typer.BadParameter("give labelled tiles (--data) or a judged map (--judged)")
    if judged is not None and (before is None or after is None):
        raise typer.BadParameter("--judged needs --before and --after")
    from adadino.training.adapt.judged import judged_tiles
    from adadino.training.adapt.run import adapt

    with progress("adapting", quiet=quiet) as report:
        if judged is not None and before is not None and after is not None:
            colours = read_colours(bands, scale)
            data = judged_tiles(judged, before, after, output, **colours)
        assert data is not None
        found = adapt(
            model,
            data,
            output,
            options,
            replay=replay_data,
            device=device,
            overwrite=overwrite,
            progress=report,
        )
    if json:
        print_json(found.as_dict())
        return
    typer.echo(found.sentence)
    typer.echo(f"wrote {output / 'report.md'}")
    if found.model is not None:
        typer.echo(
            f"wrote {found.model}: adadino predict BEFORE AFTER -o OUT --model {found.model}"
        )
