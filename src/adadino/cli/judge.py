"""`adadino judge`: verdicts on a map's polygons, drawings, and what is made of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from adadino.cli.options import Bands, Json, Overwrite, Quiet, Scale
from adadino.cli.output import print_json, print_table, progress
from adadino.cli.scene import read_colours

if TYPE_CHECKING:
    from adadino.review import Review

group = typer.Typer(
    name="judge",
    help="Judge the polygons of a map: right, wrong or unsure; here, in QGIS or on the page.",
    no_args_is_help=True,
)
Folder = Annotated[Path, typer.Argument(help="The review: a folder that `judge start` makes.")]
By = Annotated[str | None, typer.Option(help="Who judges; your user name by default.")]


@group.command("start")
def start(
    map: Annotated[
        Path, typer.Argument(help="The change mask of predict, or a probability with --threshold.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The review folder to make.")],
    probability: Annotated[
        Path | None, typer.Option(help="The map's probability: the least certain are judged first.")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="The map is a probability; change from here on.")
    ] = None,
    min_area: Annotated[
        float, typer.Option(min=0, help="Do not judge smaller polygons, m2 (pixels without a CRS).")
    ] = 0.0,
    sample: Annotated[
        int | None, typer.Option(min=1, help="Polygons of the random sample; 60 by default.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Which random sample.")] = 0,
    json: Json = False,
) -> None:
    """Begin to judge a map."""
    from adadino.review import start_review
    from adadino.review.propose import SAMPLE

    if threshold is not None and probability is not None:
        raise typer.BadParameter("the map is a mask or a probability: leave one option out")
    given: dict[str, Any] = {"mask": map, "probability": probability}
    if threshold is not None:
        given = {"mask": None, "probability": map, "threshold": threshold}
    review = start_review(output, **given, min_area=min_area, seed=seed, sample=sample or SAMPLE)
    _say(review, json, f"{len(review.polygons)} polygons to judge in {output}")


@group.command("status")
def status(review: Folder, json: Json = False) -> None:
    """Print counts, and the precision so far."""
    _say(_open(review), json)


@group.command("next")
def following(
    review: Folder,
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="How many.")] = 10,
    json: Json = False,
) -> None:
    """List what to judge next: the random sample first, then the least certain."""
    opened = _open(review)
    rows = []
    for proposal in opened.next(count):
        polygon = opened.polygons[proposal.id]
        centre = polygon.outline.representative_point()
        place = opened.to_map({"type": "Point", "coordinates": (centre.x, centre.y)})
        x, y = place["coordinates"]
        rows.append(
            {
                "id": polygon.id,
                "list": proposal.list,
                f"area_{opened.facts.unit}": polygon.area,
                "prob_mean": polygon.prob_mean,
                "x": x,
                "y": y,
            }
        )
    if json:
        print_json({"rows": rows})
    elif rows:
        print_table("to judge next", list(rows[0]), [list(row.values()) for row in rows])
    else:
        typer.echo("every polygon is judged")


@group.command("verdict")
def verdict(
    review: Folder,
    polygon: Annotated[int, typer.Argument(help="The polygon's id.")],
    verdict: Annotated[Literal["right", "wrong", "unsure"], typer.Argument()],
    note: Annotated[str | None, typer.Option(help="A remark.")] = None,
    by: By = None,
    json: Json = False,
) -> None:
    """Judge one polygon."""
    said = {"do": "judge", "shape": polygon, "verdict": verdict, "note": note}
    _act(review, said, by, json)


@group.command("undo")
def undo(review: Folder, by: By = None, json: Json = False) -> None:
    """Take back your last action."""
    _act(review, {"do": "undo"}, by, json)


@group.command("redo")
def redo(review: Folder, by: By = None, json: Json = False) -> None:
    """Bring back the last action that you took back."""
    _act(review, {"do": "redo"}, by, json)


@group.command("export")
def export(
    review: Folder,
    vector: Annotated[
        Path | None, typer.Option(help="Polygons with verdict and note, for QGIS: .gpkg.")
    ] = None,
    mask: Annotated[Path | None, typer.Option(help="The corrected mask: .tif.")] = None,
    tiles: Annotated[
        Path | None, typer.Option(help="A folder of tiles, A/B/label, for train and adapt.")
    ] = None,
    before: Annotated[str | None, typer.Option(help="The first date, for --tiles.")] = None,
    after: Annotated[str | None, typer.Option(help="The second date, for --tiles.")] = None,
    tile: Annotated[int, typer.Option(min=32, help="Side of a tile in pixels.")] = 256,
    bands: Bands = None,
    scale: Scale = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write verdicts, the corrected mask, or tiles to learn from."""
    from adadino.review import write_mask, write_tiles, write_verdicts

    if vector is None and mask is None and tiles is None:
        raise typer.BadParameter("name what to write: --vector, --mask or --tiles")
    if tiles is not None and (before is None or after is None):
        raise typer.BadParameter("--tiles needs --before and --after")
    opened = _open(review)
    outputs: list[Path] = []
    facts: dict[str, Any] = {"outputs": outputs, "warnings": []}
    if vector is not None:
        write_verdicts(opened, vector, overwrite=overwrite)
        outputs.append(vector)
    if mask is not None:
        facts["change_fraction"] = write_mask(opened, mask, overwrite=overwrite)
        outputs.append(mask)
    if tiles is not None and before is not None and after is not None:
        with progress("tiles", quiet=quiet or json) as report:
            colours = read_colours(bands, scale)
            made = write_tiles(opened, tiles, before, after, tile=tile, report=report, **colours)
        facts |= {"tiles": len(made.names), "left_out": made.left_out}
        facts["warnings"] += made.warnings
        outputs.append(tiles)
    if json:
        print_json(facts)
        return
    for text in facts["warnings"]:
        typer.echo(f"adadino: warning: {text}", err=True)
    for path in outputs:
        typer.echo(f"wrote {path}")


@group.command("import")
def intake(
    review: Folder,
    file: Annotated[Path, typer.Argument(help="A layer that was exported and edited: .gpkg.")],
    by: By = None,
    json: Json = False,
) -> None:
    """Take over verdicts and polygons that were edited in QGIS, or labelled polygons."""
    from adadino.review import read_verdicts

    opened = _open(review)
    found = read_verdicts(opened, file, by=by)
    if json:
        said = {"actions": len(found.actions), "warnings": found.notes}
        print_json(said | {"summary": opened.summary()})
        return
    for text in found.notes:
        typer.echo(f"adadino: {text}", err=True)
    _say(opened, json, f"{len(found.actions)} actions from {file}")


def _open(folder: Path) -> Review:
    from adadino.review import Review

    return Review.open(folder)


def _act(folder: Path, said: dict[str, Any], by: str | None, json: bool) -> None:
    from adadino.review.intake import user_name

    review = _open(folder)
    review.act(said, by=by or user_name())
    _say(review, json)


def _say(review: Review, json: bool, first: str = "") -> None:
    """Print the state of a review."""
    found = review.summary()
    if json:
        print_json(found)
        return
    if first:
        typer.echo(first)
    typer.echo(
        f"{found['judged']} of {found['polygons']} polygons judged: {found['right']} right, "
        f"{found['wrong']} wrong, {found['unsure']} unsure, {found['disputed']} disputed; "
        f"{found['missed']} missed changes drawn"
    )
    share, sample = found["precision"], found["sample"]
    if share is not None:
        typer.echo(
            f"precision {100 * share['value']:.0f} % (95 % interval {100 * share['low']:.0f} to "
            f"{100 * share['high']:.0f} %), from {share['judged']} polygons of the random sample"
        )
    else:
        typer.echo(f"no precision yet: judge the random sample of {sample['size']} in its order")
    if sample["skipped"]:
        typer.echo(
            f"{sample['skipped']} verdicts wait for polygons of the sample that were skipped"
        )
