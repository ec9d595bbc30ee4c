"""`adadino calibrate`: probabilities that mean what they say."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from adadino.cli.options import Json, Overwrite, Quiet
from adadino.cli.output import print_json, progress


def command(
    model: Annotated[str, typer.Argument(help="The model: tiny, a checkpoint folder, a hub id.")],
    data: Annotated[
        Path, typer.Option(help="Judged tiles: A, B and label; not those it was trained on.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The calibrated model's folder.")],
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Calibrate a model's probabilities on labelled tiles; the map at 0.5 stays the same."""
    from adadino.training.calibrate import calibrate

    with progress("calibrating", quiet=quiet or json) as report:
        found = calibrate(model, data, output, overwrite=overwrite, progress=report)
    if json:
        print_json({"outputs": [output], **asdict(found)})
        return
    typer.echo(
        f"temperature {found.temperature:.3f}: the mean distance of probability and share is "
        f"{100 * found.error_before:.2f} % before and {100 * found.error_after:.2f} % after, on "
        f"{found.tiles} tiles that were held out in turn"
    )
    typer.echo(f"wrote {output}, with reliability.png; predict --model {output} uses it")
