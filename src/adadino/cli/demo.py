"""`adadino demo`: from nothing to a map of change, offline, on a pair the model has never seen."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adadino.cli.checks import check_images, check_model
from adadino.cli.options import Device, Json, Quiet
from adadino.cli.output import print_json, progress

if TYPE_CHECKING:
    from adadino.scene.result import SceneResult

TRAINED = range(40, 48), 38
"""The seeds of the sets the bundled model was trained on, and the pairs of each that were."""
MARK = "Made by `adadino demo`, which replaces its files when it runs again."
SIDE = 512
"""Longest side of a panel: large scenes are drawn from fewer pixels."""


def command(
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder for the pair and the results.")
    ] = Path("demo"),
    pair: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="BEFORE AFTER", help="Your own two images instead."),
    ] = None,
    model: Annotated[str, typer.Option(help="A bundled model, or a checkpoint folder.")] = "tiny",
    size: Annotated[
        int | None,
        typer.Option(min=32, max=4096, help="Side of the pair in pixels.", show_default="512"),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Another seed is another place.", show_default="the demo's")
    ] = None,
    device: Device = "auto",
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write a synthetic pair as GeoTIFFs, find its changes as a user would, score and show them."""
    if pair is not None and (size is not None or seed is not None):
        name = "--size" if size is not None else "--seed"
        raise typer.BadParameter(f"{name} is of the synthetic pair; with --pair leave it out")
    check_images(*(pair or ()))
    check_model(model, exported=True)
    from adadino.data.synthetic import DEMO_SEED, DEMO_SIZE, HELD_OUT, write_geotiff_pair
    from adadino.scene import predict_scene

    seed = DEMO_SEED if seed is None else seed
    _claim(output)
    truth: Path | None = None
    if pair is None:
        before, after, truth = write_geotiff_pair(output, seed, size or DEMO_SIZE, HELD_OUT)
    else:
        before, after = map(Path, pair)
    with progress("predicting", quiet=quiet or json) as report:
        result = predict_scene(
            before,
            after,
            model,
            output=output / "change.tif",
            probability=output / "probability.tif",
            vector=output / "change.gpkg",
            device=device,
            overwrite=True,  # a demonstration is run again and again
            progress=report,
        )
    if truth is None:
        _remove_truth(output, before, after)
    scores = {} if truth is None else _score(result, truth)
    _draw(result, truth, output / "demo.png")
    if json:
        made = [] if truth is None else [before, after, truth]
        outputs = [*made, *result.outputs, output / "demo.png"]
        print_json(_facts(result, scores) | {"model": model, "outputs": outputs})
        return
    place = f"{before}, {after}" if truth is None else "A synthetic place at two dates"
    _say_found(place, result, scores, unseen=_is_unseen(model, seed))
    _say_next(before, after, output, model)


def _facts(result: SceneResult, scores: dict[str, Any]) -> dict[str, Any]:
    """What --json prints of the result."""
    said = {name: scores.get(name) for name in ("f1", "iou")} | {"warnings": result.warnings}
    return said | {"change_fraction": result.change_fraction, "polygons": len(result.polygons)}


def _say_found(place: str, result: SceneResult, scores: dict[str, Any], *, unseen: bool) -> None:
    """Print what was found and, where the truth is known, how right it is."""
    polygons = len(result.polygons)
    typer.echo(
        f"{place}: the model found change on {100 * result.change_fraction:.1f} % of it, in "
        f"{polygons} polygon{'' if polygons == 1 else 's'}."
    )
    if scores:
        typer.echo(
            f"Against the exact mask: F1 {100 * scores['f1']:.1f}, IoU {100 * scores['iou']:.1f}."
            + (" The model never saw this place." if unseen else "")
        )


def _say_next(before: Path, after: Path, output: Path, model: str) -> None:
    """Print what to look at and what to type next."""
    typer.echo(f"Look at {output / 'demo.png'}; open {output / 'change.gpkg'} in QGIS.")
    dates = shlex.join((str(before), str(after)))
    chosen = "" if model == "tiny" else f" --model {shlex.quote(model)}"
    typer.echo("\nNext:")
    typer.echo(f"  adadino predict {dates} -o change.tif --vector change.gpkg{chosen}")
    typer.echo(f"  adadino serve{chosen}    # the same in a browser")
    typer.echo(f"  adadino info {shlex.quote(model)}    # what the model is, and its limits")


def _claim(folder: Path) -> None:
    """Mark a folder as the demo's own, whose files it replaces; others are left alone."""
    from adadino.errors import WriteError
    from adadino.files import write_atomic

    mark = folder / "about.txt"
    if folder.is_dir() and any(folder.iterdir()) and not _is_ours(mark):
        raise WriteError(
            f"{folder} holds files that are not the demo's, which it might replace; choose an "
            "empty folder with -o."
        )
    write_atomic(mark, f"{MARK}\n")


def _is_ours(mark: Path) -> bool:
    """Whether the demo wrote a file: the name alone may be anybody's."""
    if not mark.is_file():
        return False
    with mark.open(encoding="utf-8", errors="replace") as file:
        return file.readline(len(MARK) + 1).rstrip("\n") == MARK


def _remove_truth(folder: Path, *pair: Path) -> None:
    """Remove the mask of an earlier synthetic pair: beside another pair's map it would mislead."""
    old = folder / "truth.tif"
    if old.resolve() not in {path.resolve() for path in pair}:
        old.unlink(missing_ok=True)


def _is_unseen(model: str, seed: int) -> bool:
    """Whether a model is known not to have been trained on a seed: the bundled one alone is."""
    from adadino.bundled import bundled
    from adadino.data.synthetic import split_seeds

    sets, pairs = TRAINED
    own = bundled(model) is not None and not Path(model).exists()  # a folder comes before it
    return own and not any(seed in split_seeds(of, "train", pairs) for of in sets)


def _score(result: SceneResult, truth: Path) -> dict[str, Any]:
    """One confusion matrix over the scene, as `adadino evaluate` counts."""
    import torch

    from adadino.metrics import Confusion, confusion_counts

    found = torch.from_numpy(result.mask == 1)
    counts = confusion_counts(found, torch.from_numpy(_read(truth) > 0))
    return Confusion.from_counts(counts).as_dict()


def _read(path: Path, shape: tuple[int, int] | None = None) -> Any:
    import rasterio
    from rasterio.enums import Resampling

    with rasterio.open(path) as raster:
        return raster.read(1, out_shape=shape, resampling=Resampling.mode)


def _draw(result: SceneResult, truth: Path | None, path: Path) -> None:
    """Before, after, probability, change over after and, where the truth is known, the errors."""
    from adadino.geo.read.small import read_pair
    from adadino.geo.write.overview import highlighted
    from adadino.reporting.pictures import captioned_sheet, error_map, heat

    height, width = result.grid.height, result.grid.width
    step = max(1.0, max(height, width) / SIDE)
    shape = max(1, round(height / step)), max(1, round(width / step))
    before, after = read_pair(result.before, result.after, result.grid, shape)
    mask = result.read("mask", shape=shape)
    panels = {
        "before": before,
        "after": after,
        "probability of change": heat(result.read("probability", shape=shape)),
        "change over after": highlighted(after, mask),
    }
    if truth is not None:
        panels["white: found, red: false alarm, green: missed"] = error_map(
            mask == 1, _read(truth, shape) > 0
        )
    captioned_sheet(panels, path)
