"""A job of a million square kilometres on paper: tiles, GPU-hours, bytes, and what breaks first.

    python benchmarks/area_cost.py --rate 338
    python benchmarks/area_cost.py --rate 338 --gpus 64 --unit 8192

Tiles are counted by the plan that prediction uses. Everything that was measured elsewhere is an
argument, with where it comes from in its help. What joining takes is measured here, with polygons
of the synthetic world joined in pieces by one process, and multiplied.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from pathlib import Path

import numpy as np
from rasterio.crs import CRS
from rasterio.transform import from_origin

from adadino.area.ledger import Ledger
from adadino.area.polygons import join_region
from adadino.area.store import Folder
from adadino.area.units import Dates, PlacedDates, Unit
from adadino.data.synthetic import World, make_pair
from adadino.geo.grid import Grid
from adadino.geo.polygons.seams import save_part, trace_part
from adadino.geo.tile.tiles import TilePlan
from adadino.scene import SceneOptions

GB, TB = 1e9, 1e12


def main() -> None:
    parser = argparse.ArgumentParser(description="What a large region takes.")
    add = parser.add_argument
    add("--rate", type=float, required=True, help="tiles a second on one GPU")
    add("--km2", type=float, default=1e6)
    add("--metres", type=float, default=0.5, help="side of a pixel")
    add("--gpus", type=int, default=64)
    add("--unit", type=int, default=4096)
    add("--tile", type=int, default=256)
    add("--overlap", type=int, default=64)
    add("--stored", type=float, default=2.0, help="bytes of an input pixel as stored, one date")
    add("--mask", type=float, default=0.02, help="bytes/pixel, from benchmarks/area.py")
    add("--probability", type=float, default=2.0, help="bytes/pixel, from benchmarks/area.py")
    add("--changes", type=float, default=20.0, help="polygons per square kilometre")
    given = parser.parse_args()

    side = round(math.sqrt(given.km2) * 1000 / given.metres)
    pixels = side**2
    units, tiles, alone = count(side, given)
    hours = tiles / given.rate / 3600
    margin = 2 * (given.tile - given.overlap)
    read = pixels * (1 + margin / given.unit) ** 2 * 2 * given.stored
    seconds = hours * 3600 / given.gpus
    polygons = given.changes * given.km2
    each = join_cost()
    rows = {
        "pixels of each date": f"{pixels:.3g} ({side:,} x {side:,})",
        "tiles": f"{tiles:,} ({100 * (tiles / alone - 1):.1f} % for the borders of units)",
        "units": f"{units:,}, {tiles / units:.0f} tiles each",
        f"GPU-hours at {given.rate:g} tiles/s": f"{hours:,.0f}",
        f"hours on {given.gpus} GPUs": f"{seconds / 3600:.1f}",
        "seconds for a unit, so lost when a worker dies": f"{tiles / units / given.rate:.0f}",
        f"read, {given.stored:g} bytes/pixel and date": f"{read / TB:,.1f} TB",
        "network of all GPUs together": f"{read / seconds / GB:.2f} GB/s",
        "network of one GPU": f"{read / seconds / given.gpus / 1e6:.1f} MB/s",
        "masks": f"{pixels * given.mask / TB:.2f} TB",
        "probabilities, if kept": f"{pixels * given.probability / TB:.1f} TB",
        "files": f"{3 * units:,} in 3 folders, {units:,} more with probabilities",
        "virtual raster": f"{units * 480 / 1e6:.0f} MB of XML",
        "manifest": f"{units * 900 / 1e6:.0f} MB of JSON",
        f"polygons, {given.changes:g} per km2": f"{polygons:.3g}",
        "their parts on disk": f"{polygons * each['disk'] / GB:,.1f} GB",
        "joining them": f"{polygons * each['seconds'] / 3600:,.1f} h of one processor",
        "on 16 processors": f"{polygons * each['seconds'] / 60 / 16:,.1f} min",
    }
    width = max(map(len, rows))
    for name, value in rows.items():
        print(f"{name:<{width}}  {value}")


def count(side: int, given: argparse.Namespace) -> tuple[int, int, int]:
    """Units, tiles that they send through the model, and tiles of the whole in one piece."""
    plan = TilePlan(side, side, tile=given.tile, overlap=given.overlap)
    first = slice(0, 1)
    starts = range(0, side, given.unit)
    # A unit's tiles are a rectangle of the plan: rows times columns, and the square is square.
    rows = sum(
        plan.number_meeting(slice(start, min(start + given.unit, side)), first) for start in starts
    ) // plan.number_meeting(first, first)
    return len(starts) ** 2, rows**2, len(plan)


def join_cost() -> dict[str, float]:
    """Seconds and bytes for each polygon in the last step: what more polygons take more."""
    small, large = join(4), join(24)
    more = large["polygons"] - small["polygons"]
    return {name: (large[name] - small[name]) / more for name in ("seconds", "disk")}


def join(across: int) -> dict[str, float]:
    """Join so many units down and across, each with the changes of the synthetic world."""
    mask = make_pair(3, 512, World(empty=0.0)).mask.astype(np.uint8)
    probability = np.where(mask, np.float32(0.9), np.float32(0.1)).astype(np.float32)
    side = across * 512
    grid = Grid(CRS.from_epsg(32633), from_origin(5e5, 5e6, 0.5, 0.5), side, side)
    scene = PlacedDates(Dates("scene", "before", "after"), grid)
    with tempfile.TemporaryDirectory() as folder:
        ledger, done, disk = Ledger(Folder(Path(folder))), {}, 0
        for place in range(across**2):
            row, col = (512 * step for step in divmod(place, across))
            unit = Unit(scene.dates, row, col, 512, 512)
            text = save_part(trace_part(mask, probability, row, col))
            path = ledger.store.path(ledger.file(unit, "polygons"))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
            done[unit] = ledger.finish(unit, ["polygons"], changed=0, valid=0)
            disk += len(text)
        start = time.process_time()
        joined = join_region(ledger, [scene], {scene.dates: done}, 512, SceneOptions(), map)
        seconds = time.process_time() - start
    return {"polygons": joined.count, "seconds": seconds, "disk": disk}


if __name__ == "__main__":
    main()
