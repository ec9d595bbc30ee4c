"""`adadino predict`: two rasters in; mask, probability, polygons, picture and STAC item out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adadino.cli.checks import check_images, check_model, check_targets
from adadino.cli.options import Backbone, Device, Json, Model, Overwrite, Quiet
from adadino.cli.output import print_json, progress
from adadino.cli.scene import takes_scene_options
from adadino.scene.extent import Extent
from adadino.scene.options import SceneOptions

if TYPE_CHECKING:
    from adadino.scene.result import SceneResult


@takes_scene_options
def command(
    *,
    before: Annotated[str, typer.Argument(help="The first date: a GeoTIFF, PNG or JPEG.")],
    after: Annotated[str, typer.Argument(help="The second date.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The mask: .tif, or .png.")],
    model: Model = "tiny",
    backbone: Backbone = None,
    probability: Annotated[Path | None, typer.Option(help="Probability raster to write.")] = None,
    vector: Annotated[
        Path | None, typer.Option(help="Polygons to write: .gpkg, .geojson, .fgb or .shp.")
    ] = None,
    overview: Annotated[
        Path | None, typer.Option(help="Picture of before, after and change to write: .png.")
    ] = None,
    stac: Annotated[Path | None, typer.Option(help="STAC item to write: .json.")] = None,
    report: Annotated[
        Path | None, typer.Option(help="Report to write, with map and figures: .html or .pdf.")
    ] = None,
    extent: Extent,
    settings: SceneOptions,
    device: Device = "auto",
    overwrite: Overwrite = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the rows of an interrupted run.")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Find what changed between two images of one place, on the first one's grid."""
    if backbone is not None and model.lower().endswith(".onnx"):
        raise typer.BadParameter(f"{model} holds its backbone; leave --backbone out")
    check_model(model, exported=True)
    outputs = (output, probability, vector, overview, stac, report)
    check_targets(outputs, inputs=(before, after), overwrite=overwrite or resume)
    check_images(before, after)
    from adadino.scene import predict_scene

    with _kept_rows(output), progress("predicting", quiet=quiet) as show:
        result = predict_scene(
            before,
            after,
            model,
            backbone=backbone,
            output=output,
            probability=probability,
            vector=vector,
            overview=overview,
            stac=stac,
            report=report,
            options=settings,
            extent=extent,
            device=device,
            overwrite=overwrite,
            resume=resume,
            progress=show,
        )
    if json:
        print_json(_facts(result, model))
        return
    for line in _summary(result):
        typer.echo(line)
    for path in result.outputs:
        typer.echo(f"wrote {path}")


def _facts(result: SceneResult, model: str) -> dict[str, Any]:
    """What --json prints."""
    shift = result.shift
    return {
        "outputs": result.outputs,
        "change_fraction": result.change_fraction,
        "polygons": len(result.polygons),
        "warnings": result.warnings,
        "shift": {
            "dy": shift.dy, "dx": shift.dx, "confidence": shift.confidence,
            "reliable": shift.reliable, "problem": shift.problem,
        },
        "registered": result.registered,
        "model": model,
        "used": result.used,
        "fit": result.fit.as_json(),
        "summary": list(_summary(result)),
    }  # fmt: skip


def _summary(result: SceneResult) -> Iterator[str]:
    """What was found and what was used, for people, line by line."""
    yield result.headline
    yield f"shift between the dates: {result.shift.text(applied=result.registered)}"
    yield from _used(result.used)


def _used(used: Mapping[str, Any]) -> Iterator[str]:
    """What was made of the images, line by line."""
    first, second = used["bands"]
    yield f"bands: {first}" if first == second else f"bands: {first}; after {second}"
    stretch = used["stretch"]
    if stretch is not None:
        ends = (
            "-".join(f"{value:g}" for value in pair) for pair in zip(*stretch.values(), strict=True)
        )
        bands = "red, green, blue " if len(stretch["low"]) == 3 else "each band "
        yield f"values from black to white: {bands}{', '.join(ends)}"
    if used["resolution_m"] is not None:
        yield f"ground resolution: {used['resolution_m']:.3g} m"
    if used["dates"] is not None:
        yield f"dates: {' and '.join(used['dates'])} ({used['dates_source']})"
    if used["aoi"] is not None:
        size = "" if used["aoi_m2"] is None else f", {used['aoi_m2']:,.0f} m2"
        yield f"area of interest: {used['aoi']}{size}"
    if used["temperature"] is not None:
        yield f"probabilities: calibrated, temperature {used['temperature']:g}"
    for mask in used["masks"] or ():
        yield f"mask: {mask}"


@contextmanager
def _kept_rows(output: Path) -> Iterator[None]:
    """After Ctrl-C, say how to go on from the rows that are finished."""
    try:
        yield
    except KeyboardInterrupt:
        from adadino.files import work_folder

        if work_folder(output).exists():
            typer.echo("adadino: the finished rows are kept; go on with --resume.", err=True)
        raise
