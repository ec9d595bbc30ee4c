"""`adadino predict-area`: many pairs, or two mosaics, on as many workers as there are."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import asdict, dataclass
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adadino.area import UNIT
from adadino.cli.checks import check_pairs
from adadino.cli.options import Backbone, Json, Model, Quiet
from adadino.cli.output import print_json, progress
from adadino.cli.scene import takes_scene_options
from adadino.scene.options import SceneOptions
from adadino.schema import Bounds

if TYPE_CHECKING:
    from adadino.area.cost import Cost
    from adadino.area.run import AreaResult


@dataclass(frozen=True)
class Workers:
    """Who computes."""

    ray_address: Annotated[str | None, "A Ray cluster to join; without it one starts here."] = None
    workers: Annotated[
        int | None, "One per GPU, or by processors; 0 works here, without Ray.", Bounds(0)
    ] = None
    threads: Annotated[
        int | None, "Threads of a worker on the CPU; as many as predict uses.", Bounds(1)
    ] = None
    device: Annotated[str, "auto, cpu, cuda."] = "auto"


@dataclass(frozen=True)
class Product:
    """What the region is cut into and what is kept of it."""

    unit: Annotated[int, "Side of a work unit in pixels."] = UNIT
    survey_block: Annotated[
        int,
        "Pixels of a block with its own stretch, shift and chunks; 0: one for all.",
        Bounds(0),
    ] = 0
    probability: Annotated[bool, "Keep the probabilities, too."] = False
    web_map: Annotated[bool, "Write the mask as PMTiles, too."] = False


@dataclass(frozen=True)
class Plan:
    """What is only counted, and by which figures."""

    dry_run: Annotated[bool, "Print units, GPU-hours and bytes; do nothing."] = False
    rate: Annotated[float | None, "Tiles a second on one GPU, for --dry-run.", Bounds(1e-6)] = None
    like: Annotated[str | None, "--out of a finished region of the same kind, for --dry-run."] = (
        None
    )
    gpu_price: Annotated[float, "Price of a GPU-hour.", Bounds(0)] = 0.0
    gb_price: Annotated[float, "Price of a GB read or written.", Bounds(0)] = 0.0


@takes_scene_options
def command(
    *,
    pairs: Annotated[
        str,
        typer.Option(
            help="A CSV (before,after,name), a STAC .json, or a folder with before/ and after/."
        ),
    ],
    out: Annotated[
        str,
        typer.Option("-o", "--out", help="A folder that all workers see, or s3://, gs://, az://."),
    ],
    mosaic: Annotated[
        bool, typer.Option("--mosaic", help="All first dates are one image, all second another.")
    ] = False,
    model: Model = "tiny",
    backbone: Backbone = None,
    product: Product,
    settings: SceneOptions,
    workers: Workers,
    plan: Plan,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare checksums of finished units, too.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Start again where another job was begun.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Print one JSON line a minute on standard error.")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    r"""Find what changed in many pairs, or between two mosaics; the same command goes on.

    Without --workers 0 it needs Ray: pip install 'adadino\[ray]'.
    """
    check_pairs(pairs)
    from adadino.area import predict_area
    from adadino.area.mosaic import as_mosaics
    from adadino.area.pairs import read_pairs

    if plan.dry_run:
        _rehearse(pairs, out, product, settings, plan, mosaic=mosaic, json=json)
        return
    with progress("units", quiet=quiet or json or watch) as report:
        result = predict_area(
            as_mosaics(pairs, out) if mosaic else read_pairs(pairs),
            out,
            model,
            backbone=backbone,
            options=settings,
            verify=verify,
            overwrite=overwrite,
            progress=report,
            watch=_print_line if watch else None,
            **asdict(product),
            **asdict(workers),
        )
    _print_result(result, json=json)


def _print_line(figures: dict[str, object]) -> None:
    """How a run goes, for whoever collects lines."""
    typer.echo(dumps(figures), err=True)


def _print_result(result: AreaResult, *, json: bool) -> None:
    """Say what was found and what failed; exit with 1 if something did."""
    if json:
        names = ("outputs", "units", "predicted", "failed", "change_fraction")
        facts = {name: getattr(result, name) for name in names}
        more = {"polygons": result.polygon_count, "warnings": result.warnings}
        print_json({**facts, **more, "domain": result.domain})
    else:
        for text in result.warnings:
            typer.echo(f"adadino: warning: {text}", err=True)
        typer.echo(
            f"{100 * result.change_fraction:.2f} % of the valid area changed, in "
            f"{result.polygon_count} polygons"
            + ("" if result.domain is None else f" ({result.domain})")
        )
        typer.echo(f"{result.predicted} of {result.units} units predicted now")
        for path in result.outputs:
            typer.echo(f"wrote {path}")
    for what, problem in result.failed.items():
        typer.echo(f"adadino: {what}: {problem}", err=True)
    if result.failed:
        typer.echo(
            f"adadino: {len(result.failed)} failed, the rest is complete; the same command tries "
            "them again.",
            err=True,
        )
        raise typer.Exit(1)


def _rehearse(
    source: str,
    out: str,
    product: Product,
    options: SceneOptions,
    plan: Plan,
    *,
    mosaic: bool,
    json: bool,
) -> None:
    """Count what the job would take, and name the pairs that cannot be opened."""
    from adadino.area.blocks import check_side
    from adadino.area.cost import RATE, Prices, estimate, find_limits, read_likeness
    from adadino.area.mosaic import as_mosaics
    from adadino.area.pairs import read_pairs
    from adadino.area.units import cut, open_scenes

    check_side(product.survey_block)
    with tempfile.TemporaryDirectory() as folder:  # nothing is written to the real one
        found = as_mosaics(source, Path(folder)) if mosaic else read_pairs(source)
        scenes, broken = open_scenes(found, options)
        cost = estimate(
            scenes,
            [unit for scene in scenes for unit in cut(scene, product.unit)],
            options,
            probability=product.probability,
            survey_block=product.survey_block,
            rate=plan.rate or RATE,
            like=read_likeness(plan.like) if plan.like else None,
            prices=Prices(plan.gpu_price, plan.gb_price),
        )
        limits = list(find_limits(scenes, cost, out, product.survey_block))
    _print_cost(len(scenes), cost, broken, limits, own_rate=plan.rate is not None, json=json)


def _print_cost(
    pairs: int,
    cost: Cost,
    broken: dict[str, str],
    limits: list[str],
    *,
    own_rate: bool,
    json: bool,
) -> None:
    """What the job would take, and what will break."""
    if json:
        print_json({**asdict(cost), "pairs": pairs, "failed": broken, "limits": limits})
    else:
        source = (
            "" if own_rate else ", what ViT-L/16 predicts at k=6 on one H200; give --rate for yours"
        )
        typer.echo(f"{pairs} pairs, {cost.units} units, {cost.megapixels:,.1f} megapixels")
        typer.echo(f"{cost.tiles:,} tiles, {100 * cost.halo:.1f} % more than in one piece")
        typer.echo(f"{cost.gpu_hours:,.2f} GPU-hours at {cost.rate:g} tiles/s{source}")
        if not own_rate and shutil.which("nvidia-smi") is None:
            typer.echo(
                f"no GPU is found here: at the one tile a second that the bundled model takes on a "
                f"processor core, {cost.tiles / 3600:,.1f} core-hours; give --rate for your own"
            )
        typer.echo(
            f"{cost.decoded / 1e9:,.2f} GB of pixels to read (less as stored), about "
            f"{cost.stored / 1e9:,.2f} GB to write, {cost.polygons:,} polygons"
        )
        typer.echo(
            f"{cost.worker_memory / 1e9:,.2f} GB of memory for a worker beside the model, "
            f"{cost.driver_memory / 1e9:,.2f} GB for the driver"
        )
        if cost.price:
            typer.echo(f"{cost.price:,.2f} at the given prices")
        for text in limits:
            typer.echo(f"adadino: note: {text}", err=True)
    for name, problem in broken.items():
        typer.echo(f"adadino: {name}: {problem}", err=True)
    if broken:
        raise typer.Exit(1)
