"""How large pixel outlines are: on the map's plane where that is true, else on the ellipsoid."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyproj
import shapely
from affine import Affine
from numpy.typing import NDArray

from adadino.geo.grid import Grid

TRUE = 0.01
"""How far a projection's areas may be from the ground's to be taken as they are; UTM's are within
0.1 %."""
STRETCH_SIDE = 1000.0
"""Metres on the map over which that is measured."""


def measure(
    outlines: NDArray[np.object_], count: NDArray[np.int64], grid: Grid
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Areas and perimeters of pixel outlines in metres, or in pixels without a CRS."""
    flat = _flat(grid)
    if flat is not None:
        unit, pixel = flat
        lengths = outlines if grid.crs is None else move(outlines, grid.transform)
        return count.astype(np.float64) * pixel, shapely.length(lengths) * unit
    geod, placed = _placed(outlines, grid)
    area = [geod.geometry_area_perimeter(outline)[0] for outline in placed]
    # The perimeter that comes with the area leaves out the holes.
    perimeter = [geod.geometry_length(outline.boundary) for outline in placed]
    return np.array(area, np.float64), np.array(perimeter, np.float64)


def areas(
    outlines: Callable[[], NDArray[np.object_]],
    count: NDArray[np.integer | np.floating],
    grid: Grid,
) -> NDArray[np.float64]:
    """The areas that `measure` gives; outlines are traced only where they are needed."""
    flat = _flat(grid)
    if flat is not None:
        return count.astype(np.float64) * flat[1]
    geod, placed = _placed(outlines(), grid)
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
    crs, placed = grid.system, move(outlines, grid.transform)
    assert crs is not None
    if crs.is_geographic:
        placed = move(placed, Affine.scale(np.degrees(_unit(crs))))
    else:
        to_degrees = _to_degrees(crs)
        placed = shapely.transform(
            placed, lambda xy: np.column_stack(to_degrees.transform(xy[:, 0], xy[:, 1]))
        )
    # Holes run against their shells, so that their areas are subtracted.
    return _geod(crs), shapely.orient_polygons(placed)


def to_metres(grid: Grid) -> Affine:
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


def ground_resolution(grid: Grid) -> float | None:
    """Side of a square that is as large as a pixel in the grid's middle, in metres on the ground.

    None without a coordinate system.
    """
    return None if grid.crs is None else float(abs(to_metres(grid).determinant) ** 0.5)


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


def _unit(crs: pyproj.CRS) -> float:
    """Metres, or for geographic systems radians, in one unit of the coordinates: feet, grads."""
    return float(crs.axis_info[0].unit_conversion_factor) if crs.axis_info else 1.0


def _geod(crs: pyproj.CRS) -> pyproj.Geod:
    geod = crs.get_geod()
    assert geod is not None, "a geographic system has an ellipsoid"
    return geod


def move(outlines: NDArray[np.object_], by: Affine) -> NDArray[np.object_]:
    """Apply an affine transform to geometries."""

    def apply(xy: NDArray[np.float64]) -> NDArray[np.float64]:
        # Number by number: a matrix product rounds differently with the number of its rows.
        x, y = xy.T
        return np.column_stack([by.a * x + by.b * y + by.c, by.d * x + by.e * y + by.f])

    moved: NDArray[np.object_] = shapely.transform(outlines, apply)
    return moved
