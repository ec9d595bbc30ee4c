"""The pairs of a series, each an ordinary scene in the folder `pairs`.

`DATE_DATE.tif` is a pair's mask, `DATE_DATE_probability.tif` its probability. `DATE_DATE.json`,
written first, says what they depend on. A pair whose two rasters are there is finished and kept; a
killed one goes on from its rows (`scene.journal`).
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rasterio.warp import transform_bounds

from adadino.errors import DatesWarning, NothingError, WriteError
from adadino.files import work_folder, write_atomic
from adadino.geo.read.clouds import read_rule
from adadino.scene.extent import Extent, Place
from adadino.scene.facts import ANSWERS, option_facts
from adadino.scene.journal import file_facts
from adadino.scene.options import SceneOptions
from adadino.scene.pace import Report
from adadino.scene.predict import predict_scene
from adadino.series.dates import Shot

if TYPE_CHECKING:
    from adadino.geo.read.source import ImagePath
    from adadino.model.detector import Detector


class Job(NamedTuple):
    """What all pairs of a series have in common."""

    folder: Path
    first: Shot
    model: Detector | ImagePath
    digest: str
    """The model's, and the device it runs on."""
    backbone: str | None
    device: str
    options: SceneOptions
    place: Place
    masks: Mapping[str, tuple[str, ...]]
    """Of clouds, by the label of an image."""


def predict_pair(
    before: Shot, after: Shot, job: Job, *, overwrite: bool, progress: Report | None
) -> Path | None:
    """Compare two dates, or keep what an earlier run has found.

    Returns:
        The probability; None if no pixel is valid on both dates, of which a warning tells.

    Raises:
        WriteError: The pair was made from other images, with another model or other settings.
    """
    mask = job.folder / f"{before.label}_{after.label}.tif"
    probability = mask.with_name(f"{mask.stem}_probability.tif")
    record = mask.with_suffix(".json")
    masks = (*job.masks[before.label], *job.masks[after.label])
    masks = tuple(dict.fromkeys(masks))
    box = _box(before, job)
    facts = _facts(before, after, masks, job)
    begun = mask.exists() or probability.exists() or (work_folder(mask) / "run.json").exists()
    if begun and not overwrite:
        _compare(facts, record)
        if mask.exists() and probability.exists() and not (work_folder(mask) / "run.json").exists():
            return probability
    write_atomic(record, json.dumps(facts, indent=1))
    days = before.moment.time.isoformat(), after.moment.time.isoformat()
    try:
        predict_scene(
            before.path,
            after.path,
            job.model,
            output=mask,
            probability=probability,
            options=job.options,
            extent=Extent(aoi=job.place.aoi, bbox=box, mask=masks, dates=days),
            backbone=job.backbone,
            device=job.device,
            # One raster without the other, and no rows: the run was killed between the two.
            overwrite=overwrite or (begun and not (work_folder(mask) / "run.json").exists()),
            resume=not overwrite,
            progress=progress,
        )
    except NothingError as error:
        record.unlink(missing_ok=True)
        warnings.warn(
            f"{before.path} and {after.path} are left apart: {error}", DatesWarning, stacklevel=2
        )
        return None
    except BaseException:
        if not (mask.exists() or work_folder(mask).exists()):
            record.unlink(missing_ok=True)
        raise
    return probability


def predict_pairs(
    shots: Sequence[Shot],
    wanted: Sequence[tuple[int, int]],
    job: Job,
    *,
    overwrite: bool,
    progress: Report | None,
) -> dict[tuple[int, int], Path]:
    """Compare all pairs, by the numbers of their dates; an empty folder is not left behind."""
    found: dict[tuple[int, int], Path] = {}
    try:
        for done, (before, after) in enumerate(wanted):
            path = predict_pair(
                shots[before], shots[after], job, overwrite=overwrite,
                progress=_part(progress, done, len(wanted)),
            )  # fmt: skip
            if path is not None:
                found[before, after] = path
    finally:
        for folder in (job.folder, job.folder.parent):
            with suppress(OSError):  # not empty
                folder.rmdir()
    if not found:
        raise NothingError(
            "no two dates of the series have a valid pixel in common; check their masks and nodata."
        )
    return found


def _part(progress: Report | None, done: int, count: int) -> Callable[[int, int, str], None] | None:
    """Counts the tiles of one pair as a part of all."""
    if progress is None:
        return None

    def report(tiles: int, total: int, message: str) -> None:
        where = f"pair {done + 1} of {count}"
        if total:
            progress(done * total + tiles, count * total, where)
        else:
            progress(0, 0, f"{where}, {message}")

    return report


def _facts(before: Shot, after: Shot, masks: tuple[str, ...], job: Job) -> dict[str, Any]:
    """What a pair's probability depends on."""
    aoi = job.place.aoi
    facts = {
        "before": file_facts(before.path),
        "after": file_facts(after.path),
        "model": job.digest,
        "masks": [[*file_facts(path), rule.name] for path, rule in map(read_rule, masks)],
        "aoi": None if aoi is None else file_facts(aoi),
        "bbox": job.place.bbox,
        **option_facts(job.options),
        "version": ANSWERS,
    }
    told: dict[str, Any] = json.loads(json.dumps(facts))
    return told


def _compare(facts: Mapping[str, Any], record: Path) -> None:
    try:
        begun = json.loads(record.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        begun = None
    if not isinstance(begun, dict):
        raise WriteError(
            f"{record} is missing or damaged, so what it belongs to cannot be kept; start again "
            "with --overwrite, or choose another folder."
        )
    for name, value in facts.items():
        if begun.get(name) != value:
            raise WriteError(
                f"{record.with_suffix('.tif')} was made with another {name} ({begun.get(name)}, "
                f"now {value}); give the same, start again with --overwrite, or choose another "
                "folder."
            )


def _box(before: Shot, job: Job) -> tuple[float, float, float, float] | None:
    """The box, which the user gives in the first date's coordinates, in those of a pair."""
    box, own, given = job.place.bbox, before.grid.crs, job.first.grid.crs
    if box is None or own is None or own == given:
        return box
    left, bottom, right, top = transform_bounds(given, own, *box)
    return left, bottom, right, top
