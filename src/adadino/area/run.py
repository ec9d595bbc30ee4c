"""`predict_area`: many pairs, or two mosaics, in; one map of what changed out.

The pairs are cut into units; workers predict those that are not finished; what they leave is tied
together. A unit that cannot be predicted is named in the end, and the others are there. The same
call again does only what is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from adadino.area import merge
from adadino.area.ledger import Ledger, Record
from adadino.area.pool import Outcomes, RayPool, run_here
from adadino.area.units import SIDE, Dates, Scene, Unit, cut, open_scenes
from adadino.area.worker import Job, model_facts
from adadino.errors import ConfigError, InputError
from adadino.files import locked
from adadino.geo.polygons.vector import check_limits
from adadino.runtime.exported import is_exported
from adadino.scene import SceneOptions
from adadino.scene.facts import option_facts
from adadino.scene.pace import Pace, Report

if TYPE_CHECKING:
    import geopandas as gpd


@dataclass(frozen=True)
class AreaResult:
    """What a region came to."""

    out: Path
    outputs: tuple[Path, ...]
    """The manifest, the virtual rasters, the layer, the styles."""
    units: int
    """All units, finished or not."""
    predicted: int
    """Those that this call has predicted."""
    failed: dict[str, str]
    """For each unit or pair that is missing, why."""
    change_fraction: float
    polygons: gpd.GeoDataFrame
    warnings: tuple[str, ...]


def predict_area(
    pairs: Sequence[Dates],
    out: Path | str,
    model: str = "tiny",
    *,
    backbone: str | None = None,
    options: SceneOptions | None = None,
    probability: bool = False,
    unit: int = SIDE,
    workers: int | None = None,
    ray_address: str | None = None,
    threads: int | None = None,
    device: str = "auto",
    verify: bool = False,
    overwrite: bool = False,
    progress: Report | None = None,
) -> AreaResult:
    """Find the change in many pairs of rasters, on as many workers as there are.

    On the CPU the result is, bit for bit, that of `predict_scene` for every pair, whatever the
    number of workers and the side of a unit; on a GPU, to rounding.

    Args:
        pairs: What to compare; see `adadino.area.pairs.read_pairs`.
        out: A folder that all workers see. What an earlier call has finished there is kept.
        model: What `adadino.load` takes, by a name that is good on every machine.
        backbone: The weights of the model's backbone, if not where it says.
        options: As for a scene.
        probability: Keep the probabilities, too: most of the bytes.
        unit: Side of a unit in pixels, a multiple of 512.
        workers: How many; None takes one for each GPU of the cluster, or for so many processors as
            it has threads. 0 predicts in this process, without Ray.
        ray_address: A cluster to join; without it one is started on this machine.
        threads: Of each worker on the CPU; None takes as many as torch takes here, so that the
            bits are those of a scene predicted here.
        device: Where the model runs: auto, cpu or cuda.
        verify: Compare the checksums of what is finished, and not only sizes.
        overwrite: Start again where the folder holds another job.
        progress: Called with units done, all units, and a message.

    Raises:
        ConfigError: A setting makes no sense, or Ray is missing.
        InputError: None of the pairs can be opened, or some have no coordinate system.
        WriteError: The folder holds another job, or cannot be written.
    """
    options, out = options or SceneOptions(), Path(out).resolve()
    check_limits(options.min_area, options.simplify)
    if not pairs:
        raise InputError("there is no pair to compare; give at least one.")
    scenes, failed = open_scenes(pairs, options)
    if not scenes:
        raise InputError(f"none of the {len(pairs)} pairs can be opened; {_first(failed)}")
    merge.check_systems(scenes)
    units = [piece for scene in scenes for piece in cut(scene, unit)]
    digest = model_facts(model, backbone, options)
    threads = threads or _threads_here(model)
    pool = None if workers == 0 else RayPool(ray_address)
    try:
        device = _device(device, model, pool)
        job = Job(
            out=str(out),
            model=model if not Path(model).exists() else str(Path(model).resolve()),
            backbone=backbone,
            digest=digest,
            options=options,
            probability=probability,
            device=device,
            threads=threads,
        )
        ledger = Ledger(out)
        with locked(out, "region"):
            ledger.begin(_facts(job, unit), overwrite=overwrite)
            ledger.sweep()
            done = _finished(ledger, scenes, units, verify=verify)
            missing = [piece for piece in units if piece not in done]
            predicted = 0
            if missing:
                started = _start(job, missing, pool, workers)
                predicted = _collect(started, scenes, units, done, failed, progress)
            ledger.sweep()
            return _tie(ledger, job, unit, scenes, units, done, failed, predicted)
    finally:
        if pool is not None:
            pool.close()


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
        "version": job.version,
    }


def _threads_here(model: str) -> int:
    if is_exported(model):
        return 1  # onnxruntime has threads of its own
    import torch

    return torch.get_num_threads()


def _device(name: str, model: str, pool: RayPool | None) -> str:
    """The kind of device, which must be the same for all workers."""
    if pool is not None:
        if name == "auto":
            return "cuda" if pool.gpus else "cpu"
        if name == "cuda" and not pool.gpus:
            raise ConfigError("the Ray cluster has no GPU; use --device cpu.")
        return name
    if is_exported(model):
        return name
    from adadino.runtime.devices import choose_device

    return choose_device(name).type


def _finished(
    ledger: Ledger, scenes: Sequence[Scene], units: Sequence[Unit], *, verify: bool
) -> dict[Unit, Record]:
    """The units that an earlier call has left, and whose dates are still the same."""
    for scene in scenes:
        ledger.forget_changed(scene.dates)
    done = {}
    for unit in units:
        record = ledger.record(unit, verify=verify)
        if record is not None:
            done[unit] = record
        else:
            ledger.reopen(unit)
    return done


def _start(job: Job, units: Sequence[Unit], pool: RayPool | None, workers: int | None) -> Outcomes:
    if pool is None:
        return run_here(job, units)
    if workers is None:
        workers = pool.gpus if job.device == "cuda" else max(1, pool.cpus // job.threads)
    return pool.run(job, units, workers=min(workers, len(units)))


def _collect(
    outcomes: Outcomes,
    scenes: Sequence[Scene],
    units: Sequence[Unit],
    done: dict[Unit, Record],
    failed: dict[str, str],
    progress: Report | None,
) -> int:
    """Take the records as they come; returns how many are good."""
    megapixels = sum(unit.height * unit.width for unit in units) / 1e6
    pace = Pace(progress, tiles=len(units), done=len(done), megapixels=megapixels)
    good = 0
    with closing(outcomes):
        for unit, record in outcomes:
            problem = record.get("problem")
            if problem is None:
                done[unit] = record
                good += 1
                pace.add(seen=1)
            else:
                failed[unit.label] = problem
                pace.add(seen=0, failed=1)
    return good


def _tie(
    ledger: Ledger,
    job: Job,
    side: int,
    scenes: Sequence[Scene],
    units: Sequence[Unit],
    done: dict[Unit, Record],
    failed: dict[str, str],
    predicted: int,
) -> AreaResult:
    """Make one result of what is finished, in the units' order and not in that of their end."""
    tied: dict[Dates, dict[Unit, Record]] = {scene.dates: {} for scene in scenes}
    for piece in units:
        if piece in done:
            tied[piece.dates][piece] = done[piece]
    failed = dict(sorted(failed.items()))
    options, out = job.options, ledger.out
    frame = merge.find_polygons(
        ledger, scenes, tied, min_area=options.min_area, simplify=options.simplify
    )
    rasters = merge.write_rasters(ledger, scenes, tied, probability=job.probability)
    outputs = [*rasters, *merge.write_polygons(frame, out, rasters)]
    manifest = out / "manifest.json"
    merge.write_manifest(manifest, job, side, scenes, tied, failed, outputs, ledger)
    changed, valid = merge.totals(tied)
    notes = [
        f"{scene.dates.name}: {text}"
        for scene in scenes
        for text in (ledger.survey(scene.dates) or {}).get("warnings", [])
    ]
    notes += merge.left_out(scenes, ledger)
    return AreaResult(
        out=out,
        outputs=(manifest, *outputs),
        units=len(units),
        predicted=predicted,
        failed=failed,
        change_fraction=changed / max(valid, 1),
        polygons=frame,
        warnings=tuple(notes),
    )


def _first(failed: dict[str, str]) -> str:
    name, problem = next(iter(failed.items()))
    return f"of {name}: {problem}"
