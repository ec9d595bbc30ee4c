"""The units' outputs as one result: virtual rasters, one layer of polygons, a manifest.

- A change that crosses the border between units is one polygon, as if there were no units. Pairs
  are not joined with each other: two predictions meet there, not two halves of one.
- Pairs of one coordinate system are one virtual raster; other systems get one each. Polygons of
  several systems are in longitude and latitude, their areas measured on their own grids.
- Nothing here depends on the clock or on who did what: equal units give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import geopandas as gpd
import numpy as np
import pandas as pd
from affine import Affine

from adadino.area.ledger import Ledger, Record
from adadino.area.units import Dates, PlacedDates, Unit
from adadino.area.worker import Job
from adadino.errors import InputError
from adadino.files import write_atomic
from adadino.geo.grid import Grid, crs_name
from adadino.geo.polygons.seams import join_parts, load_part
from adadino.geo.polygons.vector import measured, measures
from adadino.geo.write.cog import MASK, PROBABILITY, Layer
from adadino.geo.write.layers import write_layer
from adadino.geo.write.qml import write_qml
from adadino.geo.write.vrt import Piece, write_vrt

if TYPE_CHECKING:
    from rasterio.crs import CRS

Done = Mapping[Dates, Mapping[Unit, Record]]
"""The finished units of each pair, from top to bottom."""
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
        f"part of the region's; it is in {ledger.folder(scene.dates) / 'change.vrt'}"
        for scene in scenes
        if scene.dates not in held
    ]


def find_polygons(
    ledger: Ledger, scenes: Sequence[PlacedDates], done: Done, *, min_area: float, simplify: float
) -> gpd.GeoDataFrame:
    """The changes of all scenes; with several, `pair` names the scene of each."""
    frames = []
    for scene in scenes:
        parts = (load_part(ledger.file(unit, "polygons")) for unit in done[scene.dates])
        pieces = join_parts(parts, width=scene.grid.width)
        frame = measured(pieces, scene.grid, min_area=min_area, simplify=simplify)
        frames.append(frame if len(scenes) == 1 else frame.assign(pair=scene.dates.name))
    if len(frames) == 1:
        return frames[0]
    if len({crs_name(scene.grid.crs) for scene in scenes}) > 1:
        frames = [frame.to_crs("EPSG:4326") for frame in frames]
    whole = pd.concat(frames, ignore_index=True)
    whole = whole.iloc[np.argsort(-whole[measures(scenes[0].grid)[0]].to_numpy(), kind="stable")]
    whole = whole.assign(id=np.arange(1, len(whole) + 1, dtype=np.int32))
    return gpd.GeoDataFrame(whole.reset_index(drop=True), crs=frames[0].crs)


def write_rasters(
    ledger: Ledger, scenes: Sequence[PlacedDates], done: Done, *, probability: bool
) -> list[Path]:
    """Tie the rasters together: those of each pair, and those of all; returns the latter."""
    whole = []
    for kind, (name, layer) in LAYERS.items():
        if kind == "probability" and not probability:
            continue
        for scene in scenes:
            path = ledger.folder(scene.dates) / f"{name}.vrt"
            write_vrt(path, scene.grid, layer, _pieces(ledger, scene.grid, [scene], done, kind))
        systems = _systems(scenes)
        for number, (grid, members) in enumerate(systems, 1):
            path = ledger.out / (f"{name}.vrt" if len(systems) == 1 else f"{name}-{number}.vrt")
            write_vrt(path, grid, layer, _pieces(ledger, grid, members, done, kind))
            whole.append(path)
    return whole


def write_polygons(frame: gpd.GeoDataFrame, out: Path, rasters: Sequence[Path]) -> list[Path]:
    """Write the layer and the styles of all outputs."""
    layer = out / "change.gpkg"
    write_layer(frame, layer, overwrite=True)
    written = [layer]
    for raster in rasters:
        style = raster.with_suffix(".qml")
        kind: Literal["mask", "probability"] = "probability"
        if raster.name.startswith("change"):
            kind = "mask"
        write_qml(style, kind, *(("polygons",) if style.stem == layer.stem else ()))
        written.append(style)
    if out / "change.qml" not in written:
        write_qml(out / "change.qml", "polygons")
        written.append(out / "change.qml")
    return written


def write_manifest(
    path: Path,
    job: Job,
    side: int,
    scenes: Sequence[PlacedDates],
    done: Done,
    failed: Mapping[str, str],
    outputs: Sequence[Path],
    ledger: Ledger,
) -> None:
    """Say what the region consists of, what it was made with, and what is missing."""
    pairs = []
    for scene in scenes:
        survey = ledger.survey(scene.dates) or {}
        records = done[scene.dates].values()
        valid = sum(record["valid"] for record in records)
        pairs.append(
            {
                **asdict(scene.dates),
                "crs": crs_name(scene.grid.crs),
                "transform": list(scene.grid.transform)[:6],
                "height": scene.grid.height,
                "width": scene.grid.width,
                "shift": survey.get("shift"),
                "registered": survey.get("registered"),
                "warnings": survey.get("warnings", []),
                "change_fraction": sum(r["changed"] for r in records) / max(valid, 1),
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
        "options": asdict(job.options),
        "outputs": [output.relative_to(path.parent).as_posix() for output in outputs],
        "pairs": pairs,
        "units": units,
        "failed": [{"what": what, "problem": problem} for what, problem in failed.items()],
    }
    write_atomic(path, json.dumps(manifest, indent=1) + "\n")


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
            file = ledger.file(unit, kind).resolve()
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
