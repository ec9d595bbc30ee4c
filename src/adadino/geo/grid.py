"""Where pixels lie: the grid of a raster, and how two grids meet.

- The result always lies on `before`'s pixels: `before` is never resampled, so its borders and
  its values stay what the analyst sees.
- Grids that agree to a millionth of a pixel over their whole extent are equal.
- Otherwise the result is the smallest rectangle of whole `before` pixels that holds everything
  `after` covers. Where the grids are parallel, `after` covers all of it; where `after` is rotated
  against `before`, corners of the rectangle stay empty and the valid mask says so.
- Coordinates are compared as numbers. A scene at 179 degrees east and one at -179 do not meet.
- A local system (`LOCAL_CS`, an engineering system) measures lengths and has no place on Earth:
  nothing leads from it to another system.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyproj
from affine import Affine
from numpy.typing import NDArray
from rasterio.crs import CRS
from rasterio.warp import transform as reproject_points
from rasterio.warp import transform_bounds
from rasterio.windows import Window

from adadino.errors import InputError

TOLERANCE = 1e-6  # of a pixel: far below what resampling could show, far above rounding
OUTLINE_POINTS = 101  # per edge: straight edges bend when they are reprojected

Bounds = tuple[float, float, float, float]
Positions = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True)
class Grid:
    """A coordinate system, an affine transform and a size; no coordinate system means pixels."""

    crs: CRS | None
    transform: Affine
    width: int
    height: int

    @classmethod
    def of(cls, dataset: Any) -> Grid:
        """Return the grid of an open rasterio dataset."""
        return cls(dataset.crs or None, dataset.transform, dataset.width, dataset.height)

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width."""
        return self.height, self.width

    @property
    def is_geographic(self) -> bool:
        """Whether coordinates are degrees."""
        return self.crs is not None and bool(self.crs.is_geographic)

    @property
    def system(self) -> pyproj.CRS | None:
        """The coordinate system as pyproj has it, to measure with."""
        return None if self.crs is None else pyproj.CRS.from_wkt(self.crs.to_wkt())

    @property
    def is_local(self) -> bool:
        """Whether coordinates are lengths on a site of their own, without a place on Earth."""
        return self.system is not None and self.system.geodetic_crs is None

    @property
    def on_earth(self) -> bool:
        """Whether the pixels have a longitude and a latitude."""
        return self.crs is not None and not self.is_local

    @property
    def bounds(self) -> Bounds:
        """Left, bottom, right and top of all four corners, however the grid is turned."""
        corners = [
            self.transform * corner
            for corner in ((0, 0), (self.width, 0), (0, self.height), (self.width, self.height))
        ]
        xs, ys = zip(*corners, strict=True)
        return min(xs), min(ys), max(xs), max(ys)

    @property
    def resolution(self) -> tuple[float, float]:
        """Width and height of a pixel in units of the coordinate system."""
        t = self.transform
        return math.hypot(t.a, t.d), math.hypot(t.b, t.e)

    def part(self, window: Window) -> Grid:
        """Return the grid of a window of this grid."""
        origin = Affine.translation(window.col_off, window.row_off)
        return Grid(self.crs, self.transform * origin, int(window.width), int(window.height))

    def holds(self, window: Window) -> bool:
        """Whether a window has pixels and none of them lies outside this grid."""
        return bool(
            0 <= window.col_off < window.col_off + window.width <= self.width
            and 0 <= window.row_off < window.row_off + window.height <= self.height
        )

    def outline(self, points: int = OUTLINE_POINTS) -> Positions:
        """Pixel positions (columns, rows) along the four edges, and back to the first."""
        t = np.linspace(0.0, 1.0, points)
        zeros, ones = np.zeros(points), np.ones(points)
        columns = np.concatenate([t, ones, 1 - t, zeros]) * self.width
        rows = np.concatenate([zeros, t, ones, 1 - t]) * self.height
        return columns, rows

    def place(self, pixels: Positions) -> Positions:
        """The coordinates of pixel positions."""
        return _apply(self.transform, pixels)

    def is_close(self, other: Grid) -> bool:
        """Whether both grids have the same pixels, to a millionth of a pixel everywhere."""
        if (self.crs, self.width, self.height) != (other.crs, other.width, other.height):
            return False
        corners = self.outline(points=2)
        moved = _convert(corners, other, self)
        return bool(np.abs(np.subtract(moved, corners)).max() <= TOLERANCE)


@dataclass(frozen=True)
class Match:
    """How `after` comes onto `before`'s grid.

    Attributes:
        grid: Grid of the result.
        window: The result's pixels among those of `before`.
        after: Grid of `after`; in pixel mode, where pixels are all there is, that of `before`.
        equal: Whether `after`'s pixels are already the result's.
        density: Pixels of `after` along its rows and columns for one pixel of `before`.
        differences: What differs, in numbers; empty for equal grids.
    """

    grid: Grid
    window: Window
    after: Grid
    equal: bool
    density: tuple[float, float] = (1.0, 1.0)
    differences: tuple[str, ...] = ()


def match(before: Grid, after: Grid) -> Match:
    """Decide on which grid two rasters are compared.

    Raises:
        InputError: If the grids have nothing in common, if only one has a coordinate system, or
            if a transform is not one.
    """
    whole = Window(0, 0, before.width, before.height)
    first, second = bounds_text(before.bounds), bounds_text(after.bounds)
    if before.crs is None and after.crs is None:
        if (before.width, before.height) != (after.width, after.height):
            raise InputError(
                f"before is {before.width} x {before.height} pixels and after is {after.width} x "
                f"{after.height}, and neither has a coordinate system to align them by; crop "
                "them to the same size, or georeference both."
            )
        placed = Affine.identity() not in (before.transform, after.transform)
        if placed and not before.is_close(after):
            raise InputError(
                f"neither date has a coordinate system, and they lie in different places: before "
                f"at {first}, after at {second}; assign the system to "
                "both (gdal_edit.py -a_srs), or remove the transforms to compare pixel by pixel."
            )
        return Match(before, whole, before, equal=True)
    if before.crs is None or after.crs is None:
        without = "before" if before.crs is None else "after"
        raise InputError(
            f"before has {crs_name(before.crs)} with bounds {first} and after has "
            f"{crs_name(after.crs)} with bounds {second}; assign a coordinate system "
            f"to {without} (gdal_edit.py -a_srs)."
        )
    if before.crs != after.crs and (before.is_local or after.is_local):
        raise InputError(
            f"before lies in {crs_name(before.crs)} and after in {crs_name(after.crs)}; nothing "
            "leads from a local system to another one. Bring both dates into one system."
        )
    _check_transform(before, "before")
    _check_transform(after, "after")
    if before.is_close(after):
        return Match(before, whole, after, equal=True)
    window = _overlap(before, after)
    if window is None:
        raise InputError(_no_overlap(before, after))
    density = _density(before, after, window)
    differences = tuple(_differences(before, after, window, density))
    return Match(before.part(window), window, after, False, density, differences)


def crs_name(crs: CRS | None) -> str:
    """Return a short name of a coordinate system: its code, or the name it gives itself."""
    if crs is None:
        return "no CRS"
    authority = crs.to_authority()
    if authority:
        return ":".join(authority)
    named = re.search(r'"([^"]+)"', crs.to_wkt())
    return named.group(1) if named else "an unnamed CRS"


def _check_transform(grid: Grid, name: str) -> None:
    width, height = grid.resolution
    area = abs(grid.transform.determinant)  # 0 as well if the pixel's edges fall together
    # Beyond these no map has a place, and sums and products of such numbers have no value.
    bearable = all(abs(value) <= 1e15 for value in tuple(grid.transform)[:6])
    sides = min(width, height)
    if not bearable or not sides >= 1e-15 or not area >= 1e-9 * width * height:
        raise InputError(
            f"{name} has pixels of {width:g} x {height:g} and an area of {area:g}, so its "
            f"transform {tuple(grid.transform)[:6]} places nothing; correct its georeferencing "
            "(gdal_edit.py -a_ullr)."
        )


def _apply(transform: Affine, points: Positions) -> Positions:
    x, y = points
    a, b, c, d, e, f = tuple(transform)[:6]
    return a * x + b * y + c, d * x + e * y + f


def _convert(pixels: Positions, source: Grid, target: Grid) -> Positions:
    """Express pixel positions of one grid in pixels of another; infinite where there is no way."""
    points = source.place(pixels)
    if source.crs != target.crs:
        try:
            x, y = reproject_points(source.crs, target.crs, *points)
        except Exception:  # GDAL's own error types, which rasterio keeps private
            x = y = np.full_like(points[0], np.inf)
        points = np.asarray(x), np.asarray(y)
    return _apply(~target.transform, points)


def _overlap(before: Grid, after: Grid) -> Window | None:
    """Return the window of whole `before` pixels within `after`'s outline, or None."""
    columns, rows = _convert(before.outline(), before, after)
    inside = (columns >= -TOLERANCE) & (columns <= after.width + TOLERANCE)
    inside &= (rows >= -TOLERANCE) & (rows <= after.height + TOLERANCE)
    columns, rows = _convert(after.outline(), after, before)
    # An `after` that reaches beyond what before's projection can express has no outline there;
    # the valid mask then says which pixels it covers.
    if inside.all() or not (np.isfinite(columns).all() and np.isfinite(rows).all()):
        return Window(0, 0, before.width, before.height)
    left = max(0, math.ceil(columns.min() - TOLERANCE))
    top = max(0, math.ceil(rows.min() - TOLERANCE))
    right = min(before.width, math.floor(columns.max() + TOLERANCE))
    bottom = min(before.height, math.floor(rows.max() + TOLERANCE))
    if left >= right or top >= bottom:
        return None
    return Window(left, top, right - left, bottom - top)


def _density(before: Grid, after: Grid, window: Window) -> tuple[float, float]:
    """Return how many pixels of `after` one pixel of `before` spans in the window's middle."""
    column = window.col_off + window.width / 2
    row = window.row_off + window.height / 2
    steps = np.array([column, column + 1, column]), np.array([row, row, row + 1])
    (x, x_right, x_down), (y, y_right, y_down) = _convert(steps, before, after)
    across = math.hypot(x_right - x, x_down - x)
    down = math.hypot(y_right - y, y_down - y)
    if not (0 < across < math.inf and 0 < down < math.inf):
        return 1.0, 1.0
    return across, down


def _differences(
    before: Grid, after: Grid, window: Window, density: tuple[float, float]
) -> list[str]:
    found = []
    if before.crs != after.crs:
        found.append(f"CRS {crs_name(before.crs)} and {crs_name(after.crs)}")
    ratio = 1 / math.sqrt(density[0] * density[1])
    if abs(ratio - 1) > 1e-4:
        found.append(f"after's pixels are {ratio:.4g} times before's")
    turn = _turn(after) - _turn(before)
    if before.crs == after.crs and abs(turn) > 1e-4:
        found.append(f"after is turned by {turn:.2f} degrees against before")
    if before.crs == after.crs:
        origin = _convert((np.zeros(1), np.zeros(1)), after, before)
        columns, rows = (float(axis[0]) for axis in origin)
        if max(abs(columns - round(columns)), abs(rows - round(rows))) > TOLERANCE:
            found.append(f"after starts {columns:+.2f} columns and {rows:+.2f} rows from before")
    share = 100 * window.width * window.height / (before.width * before.height)
    found.append(
        f"sizes {before.width} x {before.height} and {after.width} x {after.height}, the overlap "
        f"{window.width} x {window.height} ({share:.1f} % of before)"
    )
    return found


def _turn(grid: Grid) -> float:
    """The direction of a grid's rows, in degrees counter-clockwise from the first axis."""
    return math.degrees(math.atan2(grid.transform.d, grid.transform.a))


def _no_overlap(before: Grid, after: Grid) -> str:
    bounds, system = after.bounds, crs_name(before.crs)
    if before.crs != after.crs:
        try:
            bounds = transform_bounds(after.crs, before.crs, *after.bounds)
        except Exception:  # as in _convert
            system = f"{system} and {crs_name(after.crs)}"
    text = (
        f"the images share no whole pixel: before covers {bounds_text(before.bounds)} and after "
        f"{bounds_text(bounds)} (left, bottom, right, top in {system})"
    )
    gap = max(before.bounds[0] - bounds[2], bounds[0] - before.bounds[2])
    if before.is_geographic and gap > 180:
        return (
            f"{text}; longitudes are compared as numbers, so move one of them by 360 degrees "
            "(gdal_edit.py -a_ullr) if they lie on both sides of the antimeridian."
        )
    return f"{text}; give two images of the same place."


def bounds_text(bounds: Bounds) -> str:
    """Bounds in a message."""
    return "(" + ", ".join(f"{value:.10g}" for value in bounds) + ")"
