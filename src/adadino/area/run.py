"""`predict_area`: many pairs, or two mosaics, in; one map of what changed out.

The pairs are cut into units; workers predict those that are not finished; what they leave is tied
together. A unit that cannot be predicted is named in the result, and the others are complete. The
same call again does only what is missing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from adadino.area import UNIT, merge
from adadino.area.blocks import check_side
from adadino.area.catalog import write_catalog
from adadino.area.gdal import teach_gdal
from adadino.area.ledger import Ledger, Record, Spread
from adadino.area.polygons import (
    FOLDER,
    LAYER,
    join_region,
    read_polygons,
    write_geopackage,
)
from adadino.area.pool import Outcomes, RayPool, run_here
from adadino.area.sieve import sieve_pair
from adadino.area.store import open_store
from adadino.area.units import Dates, PlacedDates, Unit, cut, open_scenes
from adadino.area.watch import Watch, Watcher
from adadino.area.webmap import write_maps
from adadino.area.worker import Job
from adadino.errors import ConfigError, InputError
from adadino.geo.polygons.vector import check_limits
from adadino.runtime.protocol import Runner
from adadino.scene.facts import ANSWERS, option_facts
from adadino.scene.options import SceneOptions
from adadino.scene.pace import Pace, Report
from adadino.scene.predict import open_model

if TYPE_CHECKING:
    import geopandas as gpd


Start = Callable[[Job, Sequence[Unit]], Outcomes]
"""Begins to predict units, here or on workers."""


@dataclass(frozen=True)
class AreaResult:
    """The result of a region."""

    out: str
    outputs: tuple[str, ...]
    """The manifest, the virtual rasters, the polygons, the styles: paths or URLs."""
    units: int
    """All units, finished or not."""
    predicted: int
    """Those that this call has predicted."""
    failed: dict[str, str]
    """For each unit or pair that is missing, why."""
    change_fraction: float
    polygon_count: int
    warnings: tuple[str, ...]
    domain: str | None
    """How pairs lie outside the ground resolution that the model knows."""
    few: gpd.GeoDataFrame | None = field(repr=False, compare=False)
    """All polygons, if they are few enough for a GeoPackage."""
    read: Callable[[], gpd.GeoDataFrame] = field(repr=False, compare=False)
    """Reads all polygons from the files of GeoParquet."""

    @cached_property
    def polygons(self) -> gpd.GeoDataFrame:
        """All polygons; many are read when they are first asked for."""
        return self.few if self.few is not None else self.read()


def predict_area(
    pairs: Sequence[Dates],
    out: Path | str,
    model: str = "tiny",
    *,
    backbone: str | None = None,
    options: SceneOptions | None = None,
    probability: bool = False,
    web_map: bool = False,
    unit: int = UNIT,
    survey_block: int = 0,
    workers: int | None = None,
    ray_address: str | None = None,
    threads: int | None = None,
    device: str = "auto",
    verify: bool = False,
    overwrite: bool = False,
    progress: Report | None = None,
    watch: Watcher | None = None,
) -> AreaResult:
    """Find the change in many pairs of rasters, on as many workers as there are.

    On the CPU the result is, bit for bit, that of `predict_scene` for every pair, whatever the
    number of workers and the side of a unit; on a GPU, to rounding.

    Args:
        pairs: What to compare; see `adadino.area.pairs.read_pairs`.
        out: A folder that all workers see, or its URL in an object store; what is there is kept.
        model: What `adadino.load` takes, by a name that is good on every machine.
        backbone: The weights of the model's backbone, if not where it says.
        options: As for a scene.
        probability: Keep the probabilities, too; they take most of the space.
        web_map: Write the masks as PMTiles, too.
        unit: Side of a unit in pixels, a multiple of 512.
        survey_block: Side in pixels of blocks that have a stretch, a shift and chunks of their own,
            blended where blocks meet; 0 settles them once for a pair, as a scene does.
        workers: None takes one for each GPU, or by processors; 0 works here, without Ray.
        ray_address: A cluster to join; without it one is started on this machine.
        threads: Threads of a worker on the CPU; None takes torch's number, as a scene does.
        device: Where the model runs: auto, cpu or cuda.
        verify: Compare the checksums of what is finished, and not only sizes.
        overwrite: Start again where the folder holds another job.
        progress: Called with units done, all units, and a message.
        watch: Called once a minute, and at the end, with figures of how it goes.

    Raises:
        AdaDINOError: A setting makes no sense, Ray is missing, no pair can be opened, some have no
            coordinate system, or the folder holds another job or cannot be written.
    """
    for name in ("split", "regularise"):
        if options is not None and getattr(options, name):
            raise ConfigError(f"{name} is for one scene: leave it out, or use adadino predict.")
    options, store = options or SceneOptions(), open_store(out)
    check_limits(options.min_area, options.simplify)
    check_side(survey_block)
    teach_gdal(out, *(name for pair in pairs for name in (pair.before, pair.after)))
    region = _survey(pairs, options, unit)
    where = str(Path(model).resolve()) if Path(model).exists() else model
    asked = Job(
        store.where, where, backbone, "", options, probability, device, threads or 0, survey_block
    )
    with ExitStack() as stack:
        pool = None if workers == 0 else stack.enter_context(closing(RayPool(ray_address)))
        job, start = _open(asked, pool, workers, stack)
        with store.lock():
            ledger = Ledger(store)
            ledger.begin(_facts(job, unit), overwrite=overwrite)
            missing = _find_missing(ledger, region, verify=verify, min_area=options.min_area)
            seen = Watch(watch, units=len(region.units), done=len(region.done))
            predicted = _collect(start(job, missing), region, progress, seen) if missing else 0
            ledger.sweep(region.dates)
            spread: Spread = map if pool is None else pool.spread
            return _tie(ledger, job, region, predicted, spread, web_map=web_map)


def _open(
    asked: Job, pool: RayPool | None, workers: int | None, stack: ExitStack
) -> tuple[Job, Start]:
    """Open the model to name it, and settle device and threads; returns what predicts units."""
    opened = stack.enter_context(ExitStack())
    # Who predicts in this process keeps the model that is opened here.
    device = asked.device if pool is None else "cpu"
    threads = asked.threads or None
    model = open_model(asked.model, device, asked.options, backbone=asked.backbone, threads=threads)
    forward = opened.enter_context(model)
    if forward.fits:
        raise ConfigError(
            f"{asked.model} judges a scene by the statistics of the whole, and a region is cut "
            "into units; use adadino predict."
        )
    job = dataclasses.replace(
        asked,
        digest=forward.digest(),
        device=_device(asked.device, forward, pool),
        threads=threads or forward.threads,
    )
    if pool is None:
        return job, partial(run_here, forward=forward)
    opened.close()
    return job, partial(pool.run, workers=workers)


@dataclass(frozen=True)
class _Region:
    """What is to be predicted, and what of it is finished."""

    side: int
    """Side of a unit in pixels."""
    scenes: list[PlacedDates]
    units: list[Unit]
    done: dict[Unit, Record]
    failed: dict[str, str]
    """For each unit or pair that is missing, why."""

    @property
    def dates(self) -> list[Dates]:
        """The pairs."""
        return [scene.dates for scene in self.scenes]


def _survey(pairs: Sequence[Dates], options: SceneOptions, side: int) -> _Region:
    """Open the headers of all pairs and cut them into units."""
    if not pairs:
        raise InputError("there is no pair to compare; give at least one.")
    scenes, failed = open_scenes(pairs, options)
    if not scenes:
        name, problem = next(iter(failed.items()))
        raise InputError(f"none of the {len(pairs)} pairs can be opened; of {name}: {problem}")
    merge.check_systems(scenes)
    units = [piece for scene in scenes for piece in cut(scene, side)]
    return _Region(side, scenes, units, {}, failed)


def _facts(job: Job, side: int) -> dict[str, object]:
    """What the units of a folder depend on; the pairs may grow, and each has its own survey."""
    return {
        "model": job.digest,
        "device": job.device,
        "threads": job.threads,
        "unit": side,
        "probability": job.probability,
        "threshold": job.options.threshold,
        **option_facts(job.options),
        **({"survey_block": job.survey_block} if job.survey_block else {}),
        "version": ANSWERS,
    }


def _device(name: str, forward: Runner, pool: RayPool | None) -> str:
    """The kind of device, which must be the same for all workers."""
    if pool is None:
        return forward.device_kind(name)
    if name == "auto":
        return "cuda" if pool.gpus else "cpu"
    if name == "cuda" and not pool.gpus:
        raise ConfigError("the Ray cluster has no GPU; use --device cpu.")
    return name


def _find_missing(ledger: Ledger, region: _Region, *, verify: bool, min_area: float) -> list[Unit]:
    """Take over what an earlier call has left of the same dates; list the missing units."""
    ledger.sweep(region.dates)
    by_pair: dict[Dates, list[Unit]] = {dates: [] for dates in region.dates}
    for unit in region.units:
        by_pair[unit.dates].append(unit)
    for dates, units in by_pair.items():
        ledger.forget_changed(dates)
        for unit, record in ledger.records(dates, units, verify=verify, min_area=min_area):
            if record is not None:
                region.done[unit] = record
    return [unit for unit in region.units if unit not in region.done]


def _collect(outcomes: Outcomes, region: _Region, progress: Report | None, seen: Watch) -> int:
    """Take the records as they come; returns how many are good."""
    megapixels = sum(unit.height * unit.width for unit in region.units) / 1e6
    count, done = len(region.units), len(region.done)
    pace = Pace(progress, tiles=count, done=done, megapixels=megapixels)
    good = 0
    with closing(outcomes):
        for unit, record in outcomes:
            problem = record.get("problem")
            if problem is None:
                region.done[unit] = record
                good += 1
                pace.add(seen=1)
                seen.add()
            else:
                region.failed[unit.label] = problem
                pace.add(seen=0, failed=1)
                seen.add(problem=problem)
    seen.tell()
    return good


def _tie(
    ledger: Ledger, job: Job, region: _Region, predicted: int, spread: Spread, *, web_map: bool
) -> AreaResult:
    """Make one result of what is finished, in the units' order and not in that of their end."""
    scenes = region.scenes
    tied: dict[Dates, dict[Unit, Record]] = {scene.dates: {} for scene in scenes}
    for piece in region.units:
        if piece in region.done:
            tied[piece.dates][piece] = region.done[piece]
    for scene in scenes:
        tied[scene.dates] = sieve_pair(
            ledger, scene, tied[scene.dates], region.side, job.options.min_area, spread
        )
    failed = dict(sorted(region.failed.items()))
    joined = join_region(ledger, scenes, tied, region.side, job.options, spread)
    rasters = merge.write_rasters(
        ledger, scenes, tied, region.side, spread, probability=job.probability
    )
    frame = write_geopackage(ledger, joined, several=len(scenes) > 1)
    layers = [FOLDER] if frame is None else [LAYER, FOLDER]
    maps = write_maps(ledger, rasters) if web_map else []
    outputs = [*rasters, *layers, *maps, *merge.write_styles(ledger, rasters)]
    outputs += write_catalog(ledger, scenes, tied, outputs, spread)
    manifest = merge.write_manifest(
        ledger, job, region.side, scenes, tied, failed, outputs, joined.files
    )
    changed, valid = merge.totals(tied)
    notes = [
        f"{scene.dates.name}: {text}"
        for scene in scenes
        for text in (ledger.survey(scene.dates) or {}).get("warnings", [])
    ]
    notes += merge.block_notes(ledger, scenes, job)
    notes += merge.left_out(scenes, ledger)
    if frame is None:
        notes.append(f"{joined.count} polygons are too many for {LAYER}; they are in {FOLDER}")
    return AreaResult(
        out=ledger.where,
        outputs=tuple(f"{ledger.where}/{name}" for name in (manifest, *outputs)),
        units=len(region.units),
        predicted=predicted,
        failed=failed,
        change_fraction=changed / max(valid, 1),
        polygon_count=joined.count,
        warnings=tuple(notes),
        domain=_outside(ledger, [scene.dates for scene in scenes]),
        few=frame,
        read=partial(read_polygons, ledger, joined.files, several=len(scenes) > 1),
    )


def _outside(ledger: Ledger, pairs: Sequence[Dates]) -> str | None:
    """What must stand beside the figures of a region with pairs outside what the model knows."""
    remarks = [(ledger.survey(dates) or {}).get("domain") for dates in pairs]
    found = [str(remark) for remark in remarks if remark is not None]
    return f"{len(found)} of {len(pairs)} pairs {found[0]}" if found else None
