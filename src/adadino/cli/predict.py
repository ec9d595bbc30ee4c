"""`adadino predict`: two rasters in; mask, probability, polygons, picture and STAC item out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adadino.cli import scene as options
from adadino.cli.output import Json, Quiet, print_json, progress

if TYPE_CHECKING:
    from adadino.model.detector import Detector


def command(
    before: Annotated[str, typer.Argument(help="The first date: a GeoTIFF, PNG or JPEG.")],
    after: Annotated[str, typer.Argument(help="The second date.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The mask: .tif, or .png.")],
    model: options.Model = "tiny",
    backbone: options.Backbone = None,
    probability: Annotated[Path | None, typer.Option(help="Probability raster to write.")] = None,
    vector: Annotated[
        Path | None, typer.Option(help="Polygons to write: .gpkg, .geojson, .fgb or .shp.")
    ] = None,
    overview: Annotated[
        Path | None, typer.Option(help="Picture of before, after and change to write: .png.")
    ] = None,
    stac: Annotated[Path | None, typer.Option(help="STAC item to write: .json.")] = None,
    threshold: options.Threshold = 0.5,
    bands: options.Bands = None,
    scale: options.Scale = None,
    register: options.Register = False,
    min_area: options.MinArea = 0.0,
    simplify: options.Simplify = 0.0,
    selection: options.Selection = "scene",
    tile: options.Tile = 256,
    overlap: options.Overlap = 64,
    batch: options.Batch = "auto",
    readers: Annotated[
        int | None, typer.Option(min=1, help="Threads that read; one per processor, at most 8.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")] = "auto",
    engine: options.Engine = "auto",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what exists.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the rows of an interrupted run.")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Find what changed between two images of one place, on the first one's grid."""
    from adadino.scene import predict_scene

    settings = options.scene_options(
        threshold=threshold,
        tile=tile,
        overlap=overlap,
        batch=batch,
        readers=readers,
        selection=selection,
        engine=engine,
        bands=bands,
        scale=scale,
        register=register,
        min_area=min_area,
        simplify=simplify,
    )
    with _kept_rows(output), progress("predicting", quiet=quiet or json) as report:
        result = predict_scene(
            before,
            after,
            _model(model, backbone),
            output=output,
            probability=probability,
            vector=vector,
            overview=overview,
            stac=stac,
            options=settings,
            device=device,
            overwrite=overwrite,
            resume=resume,
            progress=report,
        )
    shift = result.shift
    if json:
        print_json(
            {
                "outputs": result.outputs,
                "change_fraction": result.change_fraction,
                "polygons": len(result.polygons),
                "warnings": result.warnings,
                "shift": {"dy": shift.dy, "dx": shift.dx, "confidence": shift.confidence},
                "registered": result.registered,
            }
        )
        return
    typer.echo(
        f"{100 * result.change_fraction:.2f} % of the valid area changed, in "
        f"{len(result.polygons)} polygons"
    )
    typer.echo(
        f"shift between the dates: {shift.dy:+.2f}, {shift.dx:+.2f} pixels (confidence "
        f"{shift.confidence:.2f}, {'applied' if result.registered else 'not applied'})"
    )
    for path in result.outputs:
        typer.echo(f"wrote {path}")


def _model(name: str, backbone: str | None) -> Detector | str:
    """The model; an exported one by its name, since it needs no torch to be opened."""
    from adadino.runtime.exported import is_exported

    if is_exported(name):
        if backbone is not None:
            raise typer.BadParameter(f"{name} holds its backbone; leave --backbone out")
        return name
    from adadino.checkpoint import load

    return load(name, backbone=backbone)


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
