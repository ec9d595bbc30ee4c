"""The part of a scene that is wanted: polygons of any format and coordinate system, or a box.

- Only the rectangle around the polygons is read. Pixels in it whose centres lie outside of them are
  seen by the model, as the surroundings of those inside, and are nodata in every output.
- Edges are cut into short pieces before they are reprojected, because straight ones bend.
- A polygon that crosses itself has no inside that everybody would agree on: it is refused.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyproj
import shapely
from numpy.typing import NDArray
from rasterio.features import rasterize
from rasterio.windows import Window

from adadino.errors import InputError
from adadino.geo.grid import Bounds, Grid, bounds_text, crs_name
from adadino.geo.polygons.measure import areas

PIECES = 100
"""How many pieces an edge as long as the whole area is cut into."""


@dataclass(frozen=True)
class Interest:
    """The wanted part of a scene.

    Attributes:
        name: What the user called it: a file, or the numbers of a box.
        outlines: Polygons in pixels of the grid of `window`.
        window: The rectangle around them, in pixels of the whole scene.
        square_metres: Their area within the images; None without a coordinate system.
    """

    name: str
    outlines: NDArray[np.object_]
    window: Window
    square_metres: float | None

    def inside(self, window: Window) -> NDArray[np.bool_]:
        """Which pixels (h, w) of a window have their centre inside the polygons."""
        corner = window.col_off, window.row_off
        box = shapely.box(*corner, corner[0] + window.width, corner[1] + window.height)
        near = self.outlines[shapely.intersects(self.outlines, box)]
        shape = int(window.height), int(window.width)
        if not len(near):
            return np.zeros(shape, bool)
        moved = shapely.transform(near, lambda xy: xy - np.array(corner))
        drawn: NDArray[np.uint8] = rasterize(moved, shape, dtype="uint8")
        return drawn > 0

    @property
    def digest(self) -> str:
        """Names the polygons by their content."""
        return hashlib.sha256(b"".join(shapely.to_wkb(self.outlines))).hexdigest()


def read_interest(path: str, grid: Grid) -> Interest:
    """Read polygons from a file and lay them on a grid.

    Args:
        path: Anything GDAL reads as a layer: GeoPackage, GeoJSON, Shapefile, KML. Of several layers
            the first counts.
        grid: The scene's.

    Raises:
        InputError: The file cannot be read, has no polygons or no coordinate system, or its
            polygons cross themselves or lie outside the scene.
    """
    shapes, crs = _read(path)
    if not len(shapes):
        raise InputError(f"{path} is empty: it has no polygon; draw the area of interest again.")
    polygons = np.isin(shapely.get_type_id(shapes), (3, 6))  # polygons and multipolygons
    if not polygons.all():
        kind = shapes[~polygons][0].geom_type
        raise InputError(f"{path} holds a {kind}; an area of interest is made of polygons.")
    wrong = ~shapely.is_valid(shapes)
    if wrong.any():
        reason = shapely.is_valid_reason(shapes[wrong][0])
        raise InputError(
            f"a polygon of {path} is not valid ({reason}); repair it, in QGIS with Fix geometries."
        )
    if (crs is None) != (grid.crs is None):
        without = path if crs is None else "the scene"
        raise InputError(
            f"{without} has no coordinate system, so {path} has no place in the scene; assign one "
            "(ogr2ogr -a_srs, gdal_edit.py -a_srs)."
        )
    if crs is not None and grid.system is not None and crs != grid.system:
        shapes = _reprojected(shapes, crs, grid.system, path)
    return _laid(path, shapes, grid)


def box_interest(box: Bounds, grid: Grid) -> Interest:
    """A box (left, bottom, right, top) in the scene's own coordinates.

    Raises:
        InputError: The box is empty or lies outside the scene.
    """
    left, bottom, right, top = box
    name = ",".join(f"{value:.10g}" for value in box)
    if not (all(map(math.isfinite, box)) and left < right and bottom < top):
        raise InputError(
            f"the box {name} is empty; give left, bottom, right and top in the coordinates of the "
            "first image."
        )
    return _laid(name, np.array([shapely.box(*box)], object), grid)


def _read(path: str) -> tuple[NDArray[np.object_], pyproj.CRS | None]:
    import geopandas as gpd
    from pyogrio.errors import DataSourceError

    if not (Path(path).exists() or path.startswith("/vsi")):
        raise InputError(f"there is no file {path}; check the name.")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="More than one layer")
            frame = gpd.read_file(path, engine="pyogrio")
    except (DataSourceError, ValueError, OSError) as error:
        raise InputError(
            f"cannot read {path} as polygons: {str(error).rstrip('.')}; give a GeoPackage, GeoJSON "
            "or Shapefile."
        ) from error
    if not isinstance(frame, gpd.GeoDataFrame):
        raise InputError(f"{path} has no geometries; give a layer of polygons.")
    shapes = shapely.force_2d(frame.geometry.dropna().to_numpy())
    return shapes[~shapely.is_empty(shapes)], frame.crs


def _reprojected(
    shapes: NDArray[np.object_], source: pyproj.CRS, target: pyproj.CRS, path: str
) -> NDArray[np.object_]:
    left, bottom, right, top = shapely.total_bounds(shapes)
    longest = max(right - left, top - bottom) / PIECES
    convert = pyproj.Transformer.from_crs(source, target, always_xy=True)
    fine = shapely.segmentize(shapes, longest) if longest > 0 else shapes
    moved: NDArray[np.object_] = shapely.transform(
        fine, lambda xy: np.column_stack(convert.transform(xy[:, 0], xy[:, 1]))
    )
    if not np.isfinite(shapely.get_coordinates(moved)).all():
        raise InputError(
            f"{path} ({source.name}) reaches beyond what {target.name} can express; draw the area "
            "of interest around the scene only."
        )
    # Rounding may let two corners of a thin polygon cross.
    valid: NDArray[np.object_] = shapely.make_valid(moved)
    return valid


def _laid(name: str, shapes: NDArray[np.object_], grid: Grid) -> Interest:
    """Cut to the scene and counted in its pixels."""
    a, b, c, d, e, f = tuple(~grid.transform)[:6]
    matrix, offset = np.array([[a, b], [d, e]]), np.array([c, f])
    pixels = shapely.transform(shapes, lambda xy: xy @ matrix.T + offset)
    cut = shapely.intersection(pixels, shapely.box(0, 0, grid.width, grid.height))
    parts = shapely.get_parts(shapely.union_all(cut))
    parts = parts[shapely.area(parts) > 0]
    if not len(parts):
        left, bottom, right, top = shapely.total_bounds(shapes).tolist()
        raise InputError(
            f"the area of interest {name} lies outside the scene: it covers "
            f"{bounds_text((left, bottom, right, top))}, and the scene {bounds_text(grid.bounds)} "
            f"(left, bottom, right, top in {crs_name(grid.crs)})."
        )
    left, top, right, bottom = shapely.total_bounds(parts)
    columns, rows = (math.floor(left), math.ceil(right)), (math.floor(top), math.ceil(bottom))
    window = Window(columns[0], rows[0], columns[1] - columns[0], rows[1] - rows[0])
    outlines = shapely.transform(parts, lambda xy: xy - np.array([columns[0], rows[0]]))
    metres = float(areas(lambda: parts, shapely.area(parts), grid).sum())
    interest = Interest(name, outlines, window, None if grid.crs is None else metres)
    if not interest.inside(Window(0, 0, window.width, window.height)).any():
        raise InputError(
            f"the area of interest {name} is smaller than a pixel: no pixel's centre lies in it."
        )
    return interest
