"""`adadino predict-series`: many dates of one place in, the dates of what changed out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adadino.cli.checks import check_images, check_model
from adadino.cli.options import Backbone, Device, Json, Model, Quiet
from adadino.cli.output import print_json, progress
from adadino.cli.scene import takes_scene_options
from adadino.scene.extent import Place
from adadino.scene.options import SceneOptions
from adadino.series.options import SeriesOptions

if TYPE_CHECKING:
    from adadino.series.run import SeriesResult


@takes_scene_options
def command(
    *,
    images: Annotated[
        list[str], typer.Argument(help="The dates: images, a folder of images, or STAC items.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to write to.")],
    model: Model = "tiny",
    backbone: Backbone = None,
    series: SeriesOptions,
    place: Place,
    settings: SceneOptions,
    device: Device = "auto",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Compute all pairs again.")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Find what changed in a series of images of one place, and when; called again, it goes on."""
    check_model(model, exported=True)
    check_images(*images)
    from adadino.series import predict_series

    with progress("predicting", quiet=quiet) as show:
        result = predict_series(
            images,
            model,
            output=output,
            options=settings,
            series=series,
            place=place,
            backbone=backbone,
            device=device,
            overwrite=overwrite,
            progress=show,
        )
    if json:
        print_json(result.as_json())
        return
    for line in _summary(result):
        typer.echo(line)


def _summary(result: SeriesResult) -> Iterator[str]:
    for number, (image, day, source) in enumerate(
        zip(result.images, result.dates, result.sources, strict=True)
    ):
        yield f"{number} {day} ({source}): {image}"
    share, count = 100 * result.change_fraction, len(result.polygons)
    polygons = "1 polygon" if count == 1 else f"{count} polygons"
    remark = "" if result.domain is None else f" ({result.domain})"
    yield f"{share:.2f} % of the valid area changed, in {polygons}{remark}"
    for day, found in result.polygons.groupby("first_seen"):
        yield f"  first seen {day}: {len(found)}"
    yield f"wrote {result.folder}"
