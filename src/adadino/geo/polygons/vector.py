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
- `sieved` gives the mask without the changes that `polygons` leaves out for their size.
- All polygons are simplified together as a coverage (Visvalingam-Whyatt). Simplified one by one
  (`preserve_topology`), neighbours overlapped in a tenth of random masks and some were invalid.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import geopandas as gpd
import numpy as np
import pyproj
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
    Band,
    Components,
    find_components,
    label_band,
    label_bands,
)

Source: TypeAlias = NDArray[Any] | DatasetReader
"""An array (H, W), or an open raster of which the first band counts."""


class Pieces(NamedTuple):
    """Connected changes before they are measured, in reading order of their first pixels."""

    outlines: NDArray[np.object_]
    """Valid geometries on the lattice of pixel corners, each in its normal form."""
    parts: Components


TRUE = 0.01
"""How far a projection's areas may be from the ground's to be taken as they are; UTM's are within
0.1 %."""
STRETCH_SIDE = 1000.0
"""Metres on the map over which that is measured."""
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


def sieved(mask: Source, grid: Grid, *, min_area: float) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """The mask without the changes that `polygons` leaves out with the same `min_area`.

    Args:
        mask: 1 is change; 0 and 255 (nodata) are not.
        grid: Where the pixels lie.
        min_area: Smaller changes become 0; in square metres (pixels without a CRS).

    Yields:
        (first row, full rows) from top to bottom.
    """
    check_limits(min_area, 0)
    found = label_bands(_bands(mask, mask), width=mask.shape[1])
    area = _areas(mask, found.components.count, grid)
    kept = (area >= min_area)[found.component]
    for first, (row, band, _) in zip(found.firsts, _bands(mask, mask), strict=True):
        labels, count = label_band(band)
        stays = np.concatenate([[True], kept[first : first + count]])  # 0 is what is no change
        yield row, np.where(stays[labels], band, 0).astype(np.uint8)


def check_limits(min_area: float, simplify: float) -> None:
    """Refuse limits that are none.

    Raises:
        ConfigError: One of them is negative, infinite or no number.
    """
    for name, value in (("min_area", min_area), ("simplify", simplify)):
        if not 0 <= value < np.inf:
            raise ConfigError(f"{name} is {value}; give a number from 0.")


def trace(mask: Source, probability: Source) -> Pieces:
    """Outline the changed pixels and add up their probabilities; see `polygons`."""
    parts = find_components(_bands(mask, probability), width=mask.shape[1])
    return Pieces(_outlines(mask), parts)


def measured(
    pieces: Pieces, grid: Grid, *, min_area: float = 0.0, simplify: float = 0.0
) -> gpd.GeoDataFrame:
    """Measure pieces and lay them on the ground; see `polygons`."""
    outlines, parts = pieces
    area, perimeter = _measure(outlines, parts.count, grid)

    order = np.lexsort((parts.col, parts.row, -area))
    order = order[area[order] >= min_area]
    shown = outlines[order]
    if simplify > 0:
        shown = _simplify(shown, _to_metres(grid), simplify)
    if grid.transform != Affine.identity():
        shown = _move(shown, grid.transform)
    area_name, perimeter_name = measures(grid)
    fields = {
        "id": np.arange(1, len(order) + 1, dtype=np.int32),
        area_name: area[order],
        perimeter_name: perimeter[order],
        "prob_mean": parts.prob_mean[order],
        "prob_max": parts.prob_max[order],
    }
    return gpd.GeoDataFrame(fields, geometry=shown, crs=grid.system)


def _bands(mask: Source, probability: Source) -> Iterator[Band]:
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
        outlines = _snap(outlines, ~mask.transform)
    corner, owner = shapely.get_coordinates(shapely.get_exterior_ring(outlines), return_index=True)
    in_order = np.lexsort((corner[:, 0], corner[:, 1], owner))  # topmost, then leftmost
    first = corner[in_order[np.unique(owner[in_order], return_index=True)[1]]]
    outlines = outlines[np.lexsort((first[:, 0], first[:, 1]))]
    # In the normal form it does not show where tracing, or joining parts, began.
    normal: NDArray[np.object_] = shapely.normalize(outlines)
    return normal


def _measure(
    outlines: NDArray[np.object_], count: NDArray[np.int64], grid: Grid
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Areas and perimeters of pixel outlines in metres, or in pixels without a CRS."""
    flat = _flat(grid)
    if flat is not None:
        unit, pixel = flat
        lengths = outlines if grid.crs is None else _move(outlines, grid.transform)
        return count.astype(np.float64) * pixel, shapely.length(lengths) * unit
    geod, placed = _placed(outlines, grid)
    area = [geod.geometry_area_perimeter(outline)[0] for outline in placed]
    # The perimeter that comes with the area leaves out the holes.
    perimeter = [geod.geometry_length(outline.boundary) for outline in placed]
    return np.array(area, np.float64), np.array(perimeter, np.float64)


def _areas(mask: Source, count: NDArray[np.int64], grid: Grid) -> NDArray[np.float64]:
    """The areas that `_measure` gives; outlines are traced only where they are needed."""
    flat = _flat(grid)
    if flat is not None:
        return count.astype(np.float64) * flat[1]
    geod, placed = _placed(_outlines(mask), grid)
    return np.array([geod.geometry_area_perimeter(outline)[0] for outline in placed], np.float64)


def _flat(grid: Grid) -> tuple[float, float] | None:
    """Lengths of a unit and areas of a pixel; None where they are those of the ellipsoid."""
    crs = grid.system
    if crs is None:
        return 1.0, 1.0
    if crs.is_geographic or abs(_stretch(grid, crs) - 1) > TRUE:
        return None
    unit = _unit(crs)
    return unit, abs(grid.transform.determinant) * unit**2


def _placed(outlines: NDArray[np.object_], grid: Grid) -> tuple[pyproj.Geod, NDArray[np.object_]]:
    """The ellipsoid, and outlines in longitude and latitude on it."""
    crs, placed = grid.system, _move(outlines, grid.transform)
    assert crs is not None
    if crs.is_geographic:
        placed = _move(placed, Affine.scale(np.degrees(_unit(crs))))
    else:
        to_degrees = _to_degrees(crs)
        placed = shapely.transform(
            placed, lambda xy: np.column_stack(to_degrees.transform(xy[:, 0], xy[:, 1]))
        )
    # Holes run against their shells, so that their areas are subtracted.
    return _geod(crs), shapely.orient_polygons(placed)


def _simplify(
    outlines: NDArray[np.object_], to_metres: Affine, tolerance: float
) -> NDArray[np.object_]:
    """Drop corners of all outlines together: all stay valid, apart, and keep their holes."""
    if not len(outlines):
        return outlines
    return _snap(shapely.coverage_simplify(_move(outlines, to_metres), tolerance), ~to_metres)


def _to_metres(grid: Grid) -> Affine:
    """From pixels to a local plane in metres; at the grid's centre if it is geographic."""
    crs = grid.system
    if crs is None:
        return Affine.identity()
    unit = _unit(crs)
    if not crs.is_geographic:
        stretch = _stretch(grid, crs)
        scale = 1.0 if abs(stretch - 1) <= TRUE else stretch**-0.5
        return Affine.scale(unit * scale) * _linear(grid.transform)
    degrees = np.degrees(unit)
    _, y = grid.transform * (grid.width / 2, grid.height / 2)
    latitude, step, geod = y * degrees, 1e-3, _geod(crs)
    east = geod.inv(0, latitude, step, latitude)[2] / step
    north = geod.inv(0, latitude - step / 2, 0, latitude + step / 2)[2] / step
    return Affine.scale(east * degrees, north * degrees) * _linear(grid.transform)


def _stretch(grid: Grid, crs: pyproj.CRS) -> float:
    """Square metres on the map for one on the ground, at the centre of a projected grid."""
    if grid.is_local:
        return 1.0  # no ground lies below
    x, y = grid.transform * (grid.width / 2, grid.height / 2)
    half = STRETCH_SIDE / 2 / _unit(crs)
    square = shapely.box(x - half, y - half, x + half, y + half)
    corners = shapely.get_coordinates(square)
    lon, lat = _to_degrees(crs).transform(corners[:, 0], corners[:, 1])
    if not (np.isfinite(lon).all() and np.isfinite(lat).all()):
        return 1.0  # beyond the projection's world: the plane is all there is
    ground = abs(_geod(crs).polygon_area_perimeter(lon, lat)[0])
    return float(STRETCH_SIDE**2 / ground) if ground > 0 else 1.0


def _to_degrees(crs: pyproj.CRS) -> pyproj.Transformer:
    """From a projected system to longitude and latitude on its own ellipsoid."""
    geodetic = crs.geodetic_crs
    assert geodetic is not None, "a projected system stands on a geographic one"
    return pyproj.Transformer.from_crs(crs, geodetic, always_xy=True)


def _linear(transform: Affine) -> Affine:
    """The transform without its offset, which would cost digits."""
    return Affine(transform.a, transform.b, 0, transform.d, transform.e, 0)


def _move(outlines: NDArray[np.object_], by: Affine) -> NDArray[np.object_]:
    """Apply an affine transform to geometries."""
    matrix, offset = np.array([[by.a, by.b], [by.d, by.e]]), np.array([by.c, by.f])
    moved: NDArray[np.object_] = shapely.transform(outlines, lambda xy: xy @ matrix.T + offset)
    return moved


def _snap(outlines: NDArray[np.object_], to_pixels: Affine) -> NDArray[np.object_]:
    """Go back to pixel corners; rounding undoes what the way did to the last digits."""
    snapped: NDArray[np.object_] = shapely.transform(_move(outlines, to_pixels), np.rint)
    return snapped


def _unit(crs: pyproj.CRS) -> float:
    """Metres, or for geographic systems radians, in one unit of the coordinates: feet, grads."""
    return float(crs.axis_info[0].unit_conversion_factor) if crs.axis_info else 1.0


def _geod(crs: pyproj.CRS) -> pyproj.Geod:
    geod = crs.get_geod()
    assert geod is not None, "a geographic system has an ellipsoid"
    return geod
