"""`adadino predict`: two rasters in; mask, probability, polygons, picture and STAC item out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from adadino.cli.output import Json, Quiet, print_json, progress

if TYPE_CHECKING:
    from adadino.model.detector import Detector


def command(
    before: Annotated[str, typer.Argument(help="The first date: a GeoTIFF, PNG or JPEG.")],
    after: Annotated[str, typer.Argument(help="The second date.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The mask: .tif, or .png.")],
    model: Annotated[
        str, typer.Option(help="A checkpoint folder, e.g. runs/levir/best, or an .onnx file.")
    ] = "tiny",
    backbone: Annotated[
        str | None, typer.Option(help="Backbone weights, if not where the model says.")
    ] = None,
    probability: Annotated[Path | None, typer.Option(help="Probability raster to write.")] = None,
    vector: Annotated[
        Path | None, typer.Option(help="Polygons to write: .gpkg, .geojson, .fgb or .shp.")
    ] = None,
    overview: Annotated[
        Path | None, typer.Option(help="Picture of before, after and change to write: .png.")
    ] = None,
    stac: Annotated[Path | None, typer.Option(help="STAC item to write: .json.")] = None,
    threshold: Annotated[float, typer.Option(help="Probability from which a pixel changed.")] = 0.5,
    bands: Annotated[str | None, typer.Option(help="Red, green, blue from 1: 3,2,1.")] = None,
    scale: Annotated[str | None, typer.Option(help="Raw values that are black and white.")] = None,
    register: Annotated[
        bool, typer.Option("--register", help="Apply the estimated shift, if it is reliable.")
    ] = False,
    min_area: Annotated[float, typer.Option(help="Leave smaller polygons out, m2.")] = 0.0,
    simplify: Annotated[float, typer.Option(help="How far outlines may move, m.")] = 0.0,
    selection: Annotated[
        Literal["scene", "batch"], typer.Option(help="FFN chunks: once a scene, or per batch.")
    ] = "scene",
    tile: Annotated[int, typer.Option(help="Side of a tile in pixels.")] = 256,
    overlap: Annotated[int, typer.Option(help="Pixels that neighbouring tiles share.")] = 64,
    batch: Annotated[
        str, typer.Option(metavar="N|auto", help="Tiles per forward pass; auto by free memory.")
    ] = "auto",
    readers: Annotated[
        int | None, typer.Option(min=1, help="Threads that read; one per processor, at most 8.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")] = "auto",
    engine: Annotated[
        Literal["auto", "off", "bf16", "fp8", "int8"],
        typer.Option(help="Inference engine: auto is bf16 on a GPU, off elsewhere."),
    ] = "auto",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what exists.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the rows of an interrupted run.")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Find what changed between two images of one place, on the first one's grid."""
    from adadino.scene import SceneOptions, predict_scene

    options = SceneOptions(
        threshold=threshold,
        tile=tile,
        overlap=overlap,
        batch=None if batch == "auto" else whole_number(batch, "--batch"),
        readers=readers,
        selection=selection,
        engine=engine,
        bands=None if bands is None else band_numbers(bands),
        scale=None if scale is None else two_numbers(scale, "--scale"),
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
            options=options,
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
    from adadino.exported import is_exported

    if is_exported(name):
        if backbone is not None:
            raise typer.BadParameter(f"{name} holds its backbone; leave --backbone out")
        return name
    from adadino.model.checkpoint import load

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


def whole_number(text: str, option: str) -> int:
    """The number that an option holds."""
    try:
        return int(text)
    except ValueError as error:
        raise typer.BadParameter(f"{option} has {text!r}, which is no whole number") from error


def band_numbers(text: str) -> tuple[int, ...]:
    """The bands that --bands names."""
    return tuple(whole_number(number, "--bands") for number in text.split(","))


def two_numbers(text: str, option: str) -> tuple[float, float]:
    """The two numbers that an option holds."""
    try:
        low, high = map(float, text.split(","))
    except ValueError as error:
        raise typer.BadParameter(f"{option} {text!r} must be two numbers, MIN,MAX") from error
    return low, high
