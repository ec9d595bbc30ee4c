"""Tiles in Web Mercator (XYZ), as map programs ask for them, from the rasters of a job.

The place of every pixel of a tile is computed exactly; its value is that of the nearest pixel, of
the overview that fits the zoom level. Nothing but the one raster is opened.
"""

from __future__ import annotations

import functools
import math
from pathlib import Path

import numpy as np
import pyproj
import rasterio
from rasterio.windows import Window

from adadino.geo.read.trust import names_files
from adadino.web.door import open_foreign
from adadino.web.view.display import TILE, Display
from adadino.web.view.mercator import Extent
from adadino.web.view.tiles import Seen, draw_part, encoded

WORLD = 20_037_508.342789244
"""Half the width of the Web Mercator square, in metres."""
DEEPEST = 24


def placed(display: Display) -> bool:
    """Whether a scene has a place in Web Mercator that can be computed without another file."""
    known = display.wkt is not None and not names_files(display.wkt)
    return known and display.grid.on_earth


@functools.lru_cache(64)
def _way(wkt: str, *, back: bool) -> pyproj.Transformer:
    ends = (pyproj.CRS.from_wkt(wkt), pyproj.CRS("EPSG:3857"))
    return pyproj.Transformer.from_crs(*(ends[::-1] if back else ends), always_xy=True)


def mercator_extent(display: Display) -> Extent:
    """Left, bottom, right and top of a scene in Web Mercator."""
    assert display.wkt is not None
    found = _way(display.wkt, back=False).transform_bounds(*display.grid.bounds)
    left, bottom, right, top = (float(np.clip(value, -WORLD, WORLD)) for value in found)
    return left, bottom, right, top


def degrees_extent(display: Display) -> Extent:
    """West, south, east and north of a scene."""
    left, bottom, right, top = mercator_extent(display)
    way = pyproj.Transformer.from_crs("EPSG:3857", "EPSG:4326", always_xy=True)
    (west, east), (south, north) = way.transform([left, right], [bottom, top])
    return west, south, east, north


def zooms(display: Display) -> tuple[int, int]:
    """The first level on which the scene fills a tile, and the one that shows every pixel."""
    left, bottom, right, top = mercator_extent(display)
    across, up = right - left, top - bottom
    finest = min(across / display.width, up / display.height)
    last = min(DEEPEST, max(0, math.ceil(math.log2(2 * WORLD / TILE / finest) - 1e-6)))
    first = max(0, math.floor(math.log2(2 * WORLD / max(across, up, 1e-6))))
    return min(first, last), last


def tile_range(display: Display, z: int) -> tuple[int, int, int, int]:
    """The first and the last column and row of the tiles that a scene lies on."""
    left, bottom, right, top = mercator_extent(display)
    side, most = 2 * WORLD / 2**z, 2**z - 1
    edges = (left + WORLD, right + WORLD, WORLD - top, WORLD - bottom)
    first_x, last_x, first_y, last_y = (min(most, max(0, int(edge // side))) for edge in edges)
    return first_x, last_x, first_y, last_y


def draw_web_tile(
    path: Path, layer: Seen, display: Display, z: int, x: int, y: int
) -> bytes | None:
    """One tile as PNG; None outside the scene."""
    if not 0 <= z <= DEEPEST:
        return None
    first_x, last_x, first_y, last_y = tile_range(display, z)
    if not (first_x <= x <= last_x and first_y <= y <= last_y):
        return None
    assert display.wkt is not None
    side = 2 * WORLD / 2**z
    at = (np.arange(TILE) + 0.5) * side / TILE
    east, north = np.meshgrid(x * side - WORLD + at, WORLD - y * side - at)
    there = _way(display.wkt, back=True).transform(east, north)
    columns, rows = ~display.grid.transform * tuple(np.asarray(axis) for axis in there)
    with np.errstate(invalid="ignore"):  # outside of the projection there are no numbers
        inside = (columns >= 0) & (columns < display.width) & (rows >= 0) & (rows < display.height)
    if not inside.any():
        return None
    seen = (columns[inside], rows[inside])
    low = [int(axis.min()) for axis in seen]
    size = [int(axis.max()) + 1 - start for axis, start in zip(seen, low, strict=True)]
    shape = min(size[1], 2 * TILE), min(size[0], 2 * TILE)
    with rasterio.Env(), open_foreign(path) as dataset:
        shrinks = max(size) > 2 * TILE
        part = draw_part(dataset, layer, Window(*low, *size), shape, shrinks=shrinks)
    picture = np.zeros((TILE, TILE, 4), np.uint8)
    across = (seen[0] - low[0]) * shape[1] / size[0]
    down = (seen[1] - low[1]) * shape[0] / size[1]
    picture[inside] = part[down.astype(int), across.astype(int)]
    return encoded(picture)
