"""`adadino assess`: how right a map is, from a random sample that somebody judged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adadino.cli.options import Json, Overwrite
from adadino.cli.output import print_json, print_table

if TYPE_CHECKING:
    from adadino.accuracy.sample import Judged

group = typer.Typer(
    name="assess",
    help="Estimate a map's accuracy, and the area of change with its interval, from a sample.",
    no_args_is_help=True,
)


@group.command("sample")
def sample(
    map: Annotated[Path, typer.Argument(help="The change mask of predict.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The pixels to judge in QGIS: .gpkg.")
    ],
    error: Annotated[
        float, typer.Option(help="Half the 95 % interval of the overall accuracy one wants.")
    ] = 0.02,
    buffer: Annotated[
        int, typer.Option(min=0, help="Pixels around change as a stratum: omissions hide there.")
    ] = 0,
    size: Annotated[
        int | None, typer.Option(min=4, help="Pixels to judge, if not by --error.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Which random sample.")] = 0,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Draw pixels of a map at random, for somebody to judge."""
    from dataclasses import asdict

    from adadino.accuracy import draw_sample

    design = draw_sample(
        map, output, error=error, buffer=buffer, size=size, seed=seed, overwrite=overwrite
    )
    if json:
        print_json({"outputs": [output], **asdict(design)})
        return
    rows = [(s.name, f"{s.pixels:,}", s.sampled) for s in design.strata]
    print_table("pixels to judge", ("stratum", "of", "sampled"), rows)
    typer.echo(
        f"wrote {output}: fill its column verdict with change, no change or unsure, then run "
        f"adadino assess estimate {output}"
    )


@group.command("estimate")
def estimate(
    sample: Annotated[Path, typer.Argument(help="The judged sample: .gpkg.")],
    report: Annotated[
        Path | None, typer.Option(help="A one-page report to write: .html or .pdf.")
    ] = None,
    map: Annotated[
        Path | None, typer.Option(help="The change mask, to show in the report.")
    ] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Estimate accuracies and the area of change from a judged sample."""
    from adadino.accuracy import read_sample
    from adadino.accuracy.report import write_report
    from adadino.accuracy.sample import facts
    from adadino.errors import WriteError

    if report is not None and report.exists() and not overwrite:
        raise WriteError(f"{report} exists; choose another name, or --overwrite.")
    judged = read_sample(sample)
    if report is not None:
        write_report(judged, report, mask=map)
    if json:
        print_json({**facts(judged), "outputs": [] if report is None else [report]})
        return
    _show(judged)
    if report is not None:
        typer.echo(f"wrote {report}")


def _show(judged: Judged) -> None:
    from adadino.accuracy.design import CLASSES
    from adadino.accuracy.report import percent, sentence

    found = judged.assessment
    rows = [
        (name, *(percent(one[index]) for one in (found.users, found.producers, found.shares)))
        for index, name in enumerate(CLASSES)
    ]
    columns = ("class", "user's accuracy", "producer's accuracy", "share of the area")
    print_table("accuracy with 95 % intervals", columns, rows)
    typer.echo(sentence(judged))
