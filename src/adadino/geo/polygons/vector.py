"""From a change mask and its probability to polygons an analyst can measure.

- GDAL traces the outlines scanline by scanline and `components` adds up the probabilities band by
  band, so that memory is a band of rows plus the polygons themselves. The two meet at each
  component's first pixel.
- Geometry stays on the lattice of pixel corners, in whole numbers, until the last step: pixel
  counts are exact areas, and simplifying chooses corners and moves none.
- `area_m2` and `perimeter_m` (holes included) are those of the changed pixels: planar on
  projected and local grids, in metres whatever the grid's unit; geodesic on the ellipsoid on
  geographic ones, and where a projection's square metres are none (Web Mercator's at 52 degrees
  are 0.37). Without a CRS they are `area_px` and `perimeter_px`, in pixels (`measures`).
  Simplifying changes the drawing, not the numbers.
- `sieved` gives the mask without the changes that `polygons` leaves out for their size, and with
  the holes filled that are as small.
- All polygons are simplified together; see `simplify`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import geopandas as gpd
import numpy as np
import rasterio
import shapely
from affine import Affine
from numpy.typing import NDArray
from rasterio.features import shapes
from rasterio.io import DatasetReader
from rasterio.windows import Window

from adadino.errors import ConfigError, InputError
from adadino.geo.grid import Grid
from adadino.geo.polygons.components import (
    CHANGE,
    NODATA,
    Band,
    Components,
    Labelled,
    label_band,
    label_bands,
)
from adadino.geo.polygons.measure import areas, measure, move, to_metres
from adadino.geo.polygons.simplify import simplified, snap

Source: TypeAlias = NDArray[Any] | DatasetReader
"""An array (H, W), or an open raster of which the first band counts."""


class Pieces(NamedTuple):
    """Connected changes before they are measured, in reading order of their first pixels."""

    outlines: NDArray[np.object_]
    """Valid geometries on the lattice of pixel corners, each in its normal form."""
    parts: Components


ROWS = 512
"""The rows of a band; a multiple of the usual tile sizes, so that no tile is read twice."""


def polygons(
    mask: Source,
    probability: Source,
    grid: Grid,
    *,
    min_area: float = 0.0,
    simplify: float = 0.0,
) -> gpd.GeoDataFrame:
    """Turn the changed pixels into polygons with their size and probability.

    Args:
        mask: 1 is change; 0 and 255 (nodata) are not.
        probability: The probability of change.
        grid: Where the pixels lie. Without a CRS, coordinates are those of its transform: pixels,
            x right and y down, if it has none.
        min_area: Smaller polygons are left out; in square metres (pixels without a CRS).
        simplify: How far outlines may move, in metres (pixels without a CRS): corners that span a
            triangle smaller than its square go. The staircase of pixels goes at one pixel.

    Returns:
        `id` (from 1), area and perimeter (see `measures`), `prob_mean`, `prob_max` and valid
        geometries in the grid's CRS, one for pixels that share an edge; the largest first, equal
        areas in reading order. No change gives no rows.
    """
    check_limits(min_area, simplify)
    for name, source in (("mask", mask), ("probability", probability)):
        if source.shape != (grid.height, grid.width):
            raise InputError(
                f"the {name} is {source.shape} pixels and the grid {(grid.height, grid.width)}; "
                "give rasters of the grid's height and width."
            )
    return measured(trace(mask, probability), grid, min_area=min_area, simplify=simplify)


def measures(grid: Grid) -> tuple[str, str]:
    """The columns of a polygon's area and perimeter, which say what they are measured in."""
    return ("area_px", "perimeter_px") if grid.crs is None else ("area_m2", "perimeter_m")


def sieved(
    mask: Source, grid: Grid, *, min_area: float, fill: bool = False
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """The mask without the changes that `polygons` leaves out with the same `min_area`.

    Args:
        mask: 1 is change; 0 and 255 (nodata) are not.
        grid: Where the pixels lie.
        min_area: Smaller changes become 0; in square metres (pixels without a CRS).
        fill: Then fill the holes that are smaller, too. A hole is what changes enclose: it neither
            touches the scene's edge nor holds nodata. Its area is that of its pixels, as large as
            they are in the scene's middle.

    Yields:
        (first row, full rows) from top to bottom.
    """
    check_limits(min_area, 0)
    width = mask.shape[1]
    found = label_bands(bands_of(mask, mask), width=width)
    area = areas(partial(_outlines, mask), found.components.count, grid)
    large = partial(_selected, partial(bands_of, mask, mask), found, area >= min_area, 0)
    if not fill:
        yield from ((row, np.asarray(band, np.uint8)) for row, band, _ in large())
        return
    holes = label_bands(_backgrounds(large(), grid), width=width)
    pixel = 1.0 if grid.crs is None else abs(to_metres(grid).determinant)
    enclosed = holes.components.prob_max == 0  # see `_backgrounds`
    stays = ~enclosed | (holes.components.count * pixel >= min_area)
    for first, (row, band, _) in zip(holes.firsts, large(), strict=True):
        labels, count = label_band(band != CHANGE)
        kept = np.concatenate([[True], stays[holes.component[first : first + count]]])
        yield row, np.where(kept[labels], band, CHANGE).astype(np.uint8)


def _selected(
    bands: Callable[[], Iterator[Band]], found: Labelled, kept: NDArray[np.bool_], value: int
) -> Iterator[Band]:
    """Bands in which the changes that are not kept have another value."""
    for first, (row, band, other) in zip(found.firsts, bands(), strict=True):
        labels, count = label_band(band)
        stays = np.concatenate([[True], kept[found.component[first : first + count]]])
        yield row, np.where(stays[labels], band, value).astype(np.uint8), other


def _backgrounds(bands: Iterator[Band], grid: Grid) -> Iterator[Band]:
    """What is no change, as a mask, and beside it 1 where it is open: at nodata, at the edge."""
    for row, band, _ in bands:
        opened = (band == NODATA).astype(np.float32)
        opened[:, [0, -1]] = 1
        if row == 0:
            opened[0] = 1
        if row + len(band) == grid.height:
            opened[-1] = 1
        yield row, (band != CHANGE).astype(np.uint8), opened


def check_limits(min_area: float, simplify: float) -> None:
    """Refuse limits that are not finite numbers from 0.

    Raises:
        ConfigError: One of them is negative, infinite or no number.
    """
    for name, value in (("min_area", min_area), ("simplify", simplify)):
        if not 0 <= value < np.inf:
            raise ConfigError(f"{name} is {value}; give a number from 0.")


def trace(mask: Source, probability: Source) -> Pieces:
    """Outline the changed pixels and add up their probabilities; see `polygons`."""
    found = label_bands(bands_of(mask, probability), width=mask.shape[1])
    return Pieces(_outlines(mask), found.components)


def measured(
    pieces: Pieces, grid: Grid, *, min_area: float = 0.0, simplify: float = 0.0
) -> gpd.GeoDataFrame:
    """Measure pieces, lay them on the ground and number them; see `polygons`."""
    frame = rows(pieces, grid, min_area=min_area, simplify=simplify)
    return numbered(frame.drop(columns=["row", "col"]))


def numbered(frame: gpd.GeoDataFrame) -> gpd.GeoDataFrame:
    """The same rows with an `id` from 1, in their order."""
    frame.insert(0, "id", np.arange(1, len(frame) + 1, dtype=np.int32))
    return frame


def rows(
    pieces: Pieces, grid: Grid, *, min_area: float = 0.0, simplify: float = 0.0
) -> gpd.GeoDataFrame:
    """Measure pieces and lay them on the ground; `row` and `col` of the first pixel name each."""

    def draw(outlines: NDArray[np.object_]) -> NDArray[np.object_]:
        return simplified(outlines, to_metres(grid), simplify) if simplify > 0 else outlines

    ranked = rank(pieces, grid, min_area=min_area)
    return drawn(ranked, grid, draw(ranked.pieces.outlines))


class Ranked(NamedTuple):
    """Pieces that are large enough, the largest first, and how large they are."""

    pieces: Pieces
    area: NDArray[np.float64]
    perimeter: NDArray[np.float64]


def rank(pieces: Pieces, grid: Grid, *, min_area: float) -> Ranked:
    """Measure pieces and sort them; equal areas in reading order."""
    outlines, parts = pieces
    area, perimeter = measure(outlines, parts.count, grid)
    order = np.lexsort((parts.col, parts.row, -area))
    order = order[area[order] >= min_area]
    kept = Pieces(outlines[order], parts.take(order))
    return Ranked(kept, area[order], perimeter[order])


def drawn(ranked: Ranked, grid: Grid, outlines: NDArray[np.object_]) -> gpd.GeoDataFrame:
    """The rows of ranked pieces with these outlines, in pixels; see `rows`."""
    parts = ranked.pieces.parts
    if grid.transform != Affine.identity():
        outlines = move(outlines, grid.transform)
    area_name, perimeter_name = measures(grid)
    fields = {
        "row": parts.row,
        "col": parts.col,
        area_name: ranked.area,
        perimeter_name: ranked.perimeter,
        "prob_mean": parts.prob_mean,
        "prob_max": parts.prob_max,
    }
    return gpd.GeoDataFrame(fields, geometry=outlines, crs=grid.system)


def bands_of(mask: Source, probability: Source) -> Iterator[Band]:
    """The two sources in bands of rows."""
    height = mask.shape[0]
    for row in range(0, height, ROWS):
        stop = min(row + ROWS, height)
        yield row, _read(mask, row, stop), _read(probability, row, stop)


def _read(source: Source, start: int, stop: int) -> NDArray[Any]:
    if isinstance(source, np.ndarray):
        return source[start:stop]
    rows: NDArray[Any] = source.read(1, window=Window(0, start, source.width, stop - start))
    return rows


def _outlines(mask: Source) -> NDArray[np.object_]:
    """The valid polygons in pixel coordinates, in reading order of their first pixels."""
    if isinstance(mask, np.ndarray):
        changed = mask == CHANGE
        traced = shapes(changed.astype(np.uint8), changed)
    else:
        # The band is its own mask: outlines of zeros are not even traced.
        band = rasterio.band(mask, 1)
        traced = shapes(band, band)
    found = [
        shapely.Polygon(rings[0], rings[1:])
        for rings in (outline["coordinates"] for outline, value in traced if value == CHANGE)
    ]
    outlines: NDArray[np.object_] = np.array(found, dtype=object)
    if not found:
        return outlines
    if not isinstance(mask, np.ndarray):  # GDAL has applied the raster's transform
        outlines = snap(outlines, ~mask.transform)
    corner, owner = shapely.get_coordinates(shapely.get_exterior_ring(outlines), return_index=True)
    in_order = np.lexsort((corner[:, 0], corner[:, 1], owner))  # topmost, then leftmost
    first = corner[in_order[np.unique(owner[in_order], return_index=True)[1]]]
    outlines = outlines[np.lexsort((first[:, 0], first[:, 1]))]
    # In the normal form it does not show where tracing, or joining parts, began.
    normal: NDArray[np.object_] = shapely.normalize(outlines)
    return normal
