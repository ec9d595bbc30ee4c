"""The units' outputs as one result: virtual rasters, styles, a manifest.

- Pairs are not joined with each other: two predictions meet there, not two halves of one.
- Pairs of one coordinate system are one virtual raster; other systems get one each. Polygons of
  several systems are in longitude and latitude, their areas measured on their own grids.
- Nothing here depends on the clock or on who did what: equal units give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Literal

import numpy as np
from affine import Affine

from adadino.area.blocks import Block, cut_blocks
from adadino.area.ledger import Done, Ledger, Record, Spread
from adadino.area.overviews import write_overviews
from adadino.area.store import without_secrets
from adadino.area.units import PlacedDates
from adadino.area.worker import Job
from adadino.errors import InputError
from adadino.geo.grid import Grid, crs_name
from adadino.geo.write.cog import MASK, PROBABILITY, Layer
from adadino.geo.write.qml import write_qml
from adadino.geo.write.vrt import Piece, write_vrt

if TYPE_CHECKING:
    from rasterio.crs import CRS

LAYERS: dict[Literal["mask", "probability"], tuple[str, Layer]] = {
    "mask": ("change", MASK),
    "probability": ("probability", PROBABILITY),
}


def check_systems(scenes: Sequence[PlacedDates]) -> None:
    """Refuse pairs that cannot lie in one region, before anything is computed.

    Raises:
        InputError: Only some have a coordinate system, or one of several systems is local.
    """
    without = [scene.dates.name for scene in scenes if scene.grid.crs is None]
    if 0 < len(without) < len(scenes):
        raise InputError(
            f"{without[0]} has no coordinate system ({len(without)} of {len(scenes)} pairs), so it "
            "has no place among the others; georeference it, or give it a list of its own."
        )
    local = [scene.dates.name for scene in scenes if scene.grid.is_local]
    if local and len({crs_name(scene.grid.crs) for scene in scenes}) > 1:
        raise InputError(
            f"{local[0]} lies in a local coordinate system ({len(local)} of {len(scenes)} pairs), "
            "from which nothing leads to the others; give each system a list of its own."
        )


def left_out(scenes: Sequence[PlacedDates], ledger: Ledger) -> list[str]:
    """A sentence for each pair that is in no raster of the whole region."""
    held = {scene.dates for _, members in _systems(scenes) for scene in members}
    return [
        f"{scene.dates.name}: its grid is turned or has no coordinate system, so its raster is not "
        f"part of the region's; it is in {ledger.where}/pairs/{scene.dates.name}/change.vrt"
        for scene in scenes
        if scene.dates not in held
    ]


def write_rasters(
    ledger: Ledger,
    scenes: Sequence[PlacedDates],
    done: Done,
    side: int,
    spread: Spread,
    *,
    probability: bool,
) -> list[str]:
    """Tie the rasters together: those of each pair, and those of all; returns the latter."""
    whole = []
    for kind, (name, layer) in LAYERS.items():
        if kind == "probability" and not probability:
            continue
        for scene in scenes:
            pieces = _pieces(ledger, scene.grid, [scene], done, kind)
            _write_vrt(ledger, f"pairs/{scene.dates.name}/{name}.vrt", scene.grid, layer, pieces)
        systems = _systems(scenes)
        for number, (grid, members) in enumerate(systems, 1):
            vrt = f"{name}.vrt" if len(systems) == 1 else f"{name}-{number}.vrt"
            _write_vrt(ledger, vrt, grid, layer, _pieces(ledger, grid, members, done, kind))
            write_overviews(ledger, vrt, grid, layer, kind, members, done, side, spread)
            whole.append(vrt)
    return whole


def _write_vrt(
    ledger: Ledger, name: str, grid: Grid, layer: Layer, pieces: Iterator[Piece]
) -> None:
    write_vrt(ledger.store.path(name), grid, layer, pieces)
    ledger.store.publish(name)


def write_styles(ledger: Ledger, rasters: Sequence[str]) -> list[str]:
    """Write the QGIS styles of the rasters and the polygons."""
    styles: dict[str, list[Literal["mask", "probability", "polygons"]]] = {}
    for raster in rasters:
        kind: Literal["mask", "probability"] = "probability"
        if raster.startswith("change"):
            kind = "mask"
        styles[f"{raster.removesuffix('.vrt')}.qml"] = [kind]
    styles.setdefault("change.qml", []).append("polygons")
    for name, kinds in styles.items():
        write_qml(ledger.store.path(name), *kinds)
        ledger.store.publish(name)
    return list(styles)


def write_manifest(
    ledger: Ledger,
    job: Job,
    side: int,
    scenes: Sequence[PlacedDates],
    done: Done,
    failed: Mapping[str, str],
    outputs: Sequence[str],
    polygons: Mapping[str, Record],
) -> str:
    """Say what the region consists of, what it was made with, and what is missing."""
    pairs = []
    for scene in scenes:
        survey = ledger.survey(scene.dates) or {}
        records = done[scene.dates].values()
        valid = sum(record["valid"] for record in records)
        pairs.append(
            {
                **{name: without_secrets(value) for name, value in asdict(scene.dates).items()},
                "crs": crs_name(scene.grid.crs),
                "transform": list(scene.grid.transform)[:6],
                "height": scene.grid.height,
                "width": scene.grid.width,
                "shift": survey.get("shift"),
                "registered": survey.get("registered"),
                "warnings": survey.get("warnings", []),
                "change_fraction": sum(r["changed"] for r in records) / max(valid, 1),
                **_blocks(ledger, scene, job),
            }
        )
    units = [
        {"pair": u.dates.name, "row": u.row, "col": u.col, "height": u.height, "width": u.width}
        | record
        for records in done.values()
        for u, record in records.items()
    ]
    manifest = {
        "adadino": job.version,
        "model": job.model,
        "model_digest": job.digest,
        "device": job.device,
        "threads": job.threads,
        "unit": side,
        **({"survey_block": job.survey_block} if job.survey_block else {}),
        "options": asdict(job.options),
        "outputs": list(outputs),
        "polygons": [{"file": file, **said} for file, said in polygons.items()],
        "pairs": pairs,
        "units": units,
        "failed": [{"what": what, "problem": problem} for what, problem in failed.items()],
    }
    ledger.write("manifest.json", json.dumps(manifest, indent=1) + "\n")
    return "manifest.json"


def _surveys(ledger: Ledger, scene: PlacedDates, job: Job) -> Iterator[tuple[Block, Record]]:
    """The surveys of a pair's blocks, as far as they were needed."""
    for block in cut_blocks(scene.grid.shape, job.survey_block):
        survey = ledger.survey(scene.dates, block.name)
        if survey is not None:
            yield block, survey


def _blocks(ledger: Ledger, scene: PlacedDates, job: Job) -> dict[str, list[Record]]:
    """What each block of a pair was predicted with; nothing where one survey stands for all."""
    if not job.survey_block:
        return {}
    names = ("shift", "registered", "stretch", "own")
    blocks = [
        {"row": block.top, "col": block.left}
        | {"height": block.bottom - block.top, "width": block.right - block.left}
        | {name: survey[name] for name in names}
        for block, survey in _surveys(ledger, scene, job)
    ]
    return {"blocks": blocks}


def block_notes(ledger: Ledger, scenes: Sequence[PlacedDates], job: Job) -> Iterator[str]:
    """A sentence for each pair with blocks that could not be registered."""
    for scene in scenes:
        surveys = [survey for _, survey in _surveys(ledger, scene, job)]
        left = sum(not survey["registered"] for survey in surveys)
        if job.options.register and left:
            yield (
                f"{scene.dates.name}: the shift between the dates is not applied in {left} of "
                f"{len(surveys)} blocks, where neither they nor the whole pair tell it"
            )


def _pieces(
    ledger: Ledger,
    grid: Grid,
    scenes: Sequence[PlacedDates],
    done: Done,
    kind: Literal["mask", "probability"],
) -> Iterator[Piece]:
    """The units' files in the pixels of a grid."""
    for scene in scenes:
        # Exact where the grid is the scene's own; elsewhere as near as the two lattices allow.
        to_grid = Affine.identity()
        if grid is not scene.grid:
            to_grid = ~grid.transform * scene.grid.transform
        for unit in done[scene.dates]:
            col, row = to_grid * (unit.col, unit.row)
            right, bottom = to_grid * (unit.col + unit.width, unit.row + unit.height)
            own = Grid(scene.grid.crs, scene.grid.transform, unit.width, unit.height)
            file = ledger.store.root / ledger.file(unit, kind)
            yield Piece(file, own, *map(_whole, (row, col, bottom - row, right - col)))


def _whole(number: float) -> float:
    """Round off what a conversion through coordinates costs."""
    return round(number) if abs(number - round(number)) < 1e-6 else number


def _systems(scenes: Sequence[PlacedDates]) -> list[tuple[Grid, list[PlacedDates]]]:
    """One grid for the scenes of each coordinate system, with pixels like the first one's.

    Scenes that are turned, or have no coordinate system, are left out, unless there is only one.
    """
    if len(scenes) == 1:
        return [(scenes[0].grid, list(scenes))]
    by_system: dict[str, list[PlacedDates]] = {}
    for scene in scenes:
        t = scene.grid.transform
        if scene.grid.crs is not None and t.b == t.d == 0:
            by_system.setdefault(crs_name(scene.grid.crs), []).append(scene)
    return [(_union(members), members) for _, members in sorted(by_system.items())]


def _union(scenes: Sequence[PlacedDates]) -> Grid:
    """The grid that holds all of them."""
    first = scenes[0].grid
    corners: list[tuple[float, float]] = []
    for scene in scenes:
        grid, t = scene.grid, ~first.transform * scene.grid.transform
        corners += [t * (0, 0), t * (grid.width, grid.height)]
    columns, rows = zip(*corners, strict=True)
    left, top = int(np.floor(_whole(min(columns)))), int(np.floor(_whole(min(rows))))
    right, bottom = int(np.ceil(_whole(max(columns)))), int(np.ceil(_whole(max(rows))))
    origin = first.transform * Affine.translation(left, top)
    crs: CRS | None = first.crs
    return Grid(crs, origin, right - left, bottom - top)


def totals(done: Done) -> tuple[int, int]:
    """Changed and valid pixels of all finished units."""
    every = [record for records in done.values() for record in records.values()]
    return sum(record["changed"] for record in every), sum(record["valid"] for record in every)
