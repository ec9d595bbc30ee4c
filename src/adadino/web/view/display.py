"""How a scene is laid out on the screen: its coordinates, its zoom levels, its tiles.

- A scene with a coordinate system and north up is shown in its own coordinates. A turned one, or
  one without a system, is shown in pixels: x right, y up from minus the height to zero.
- Every level halves the resolution of the next; the last shows a pixel as a pixel. Tiles are
  square on the screen even where pixels are not, so one resolution counts in both directions.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from adadino.geo.grid import Grid, crs_name
from adadino.geo.write.overview import ground_span
from adadino.web.view.mercator import fit_mercator

TILE = 256


@dataclass(frozen=True)
class Display:
    """The layout of one scene; all the page needs to know of where it lies."""

    width: int
    height: int
    crs: str | None
    """The name of the coordinate system; None for pixels."""
    wkt: str | None
    transform: tuple[float, ...]
    """From pixels (column, row) to the scene's coordinates: a, b, c, d, e, f."""
    native: bool
    """Whether the map is in the scene's coordinates; in pixels otherwise."""
    extent: tuple[float, float, float, float]
    """Left, bottom, right, top on the map."""
    resolution: float
    """Map units for one pixel of the screen at the last level."""
    levels: int
    metres: float | None
    """Metres on the ground for one map unit, in the middle of the scene; None for pixels."""
    pixel_area: float
    """Square metres of a pixel on the ground, roughly; 1 for pixels."""
    mercator: dict[str, Any] | None = None
    """The way to Web Mercator and back, for a basemap."""
    infrared: bool = False
    """Whether both dates can be seen in false colour, too."""

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Display:
        """Back from JSON."""
        lists = {name: tuple(data[name]) for name in ("transform", "extent")}
        return cls(**(data | lists))

    @property
    def grid(self) -> Grid:
        """The scene's grid."""
        from affine import Affine
        from rasterio.crs import CRS

        crs = None if self.wkt is None else CRS.from_wkt(self.wkt)
        return Grid(crs, Affine(*self.transform), self.width, self.height)

    @property
    def _pixel(self) -> tuple[float, float]:
        """Width and height of a pixel on the map."""
        return (self.transform[0], -self.transform[4]) if self.native else (1.0, 1.0)

    def window(self, z: int, x: int, y: int) -> tuple[float, float, float, float] | None:
        """The pixels of a tile: first column, first row, columns, rows; None outside the scene."""
        if not 0 <= z < self.levels:
            return None
        side = TILE * self.resolution * 2.0 ** (self.levels - 1 - z)
        wide, high = (side / size for size in self._pixel)
        inside = 0 <= x * wide < self.width and 0 <= y * high < self.height
        return (x * wide, y * high, wide, high) if inside and x >= 0 and y >= 0 else None


def lay_out(grid: Grid) -> Display:
    """Decide how a scene is shown."""
    t = grid.transform
    native = grid.crs is not None and t.b == 0 == t.d and t.a > 0 > t.e
    extent = grid.bounds if native else (0.0, -float(grid.height), float(grid.width), 0.0)
    resolution = min(t.a, -t.e) if native else 1.0
    longest = max(extent[2] - extent[0], extent[3] - extent[1])
    levels = 1 + max(0, math.ceil(math.log2(longest / resolution / TILE) - 1e-9))
    span, unit = ground_span(grid)
    metres = None if unit == "px" else span / (extent[2] - extent[0])
    area = 1.0
    if metres is not None:
        across = span / grid.width
        # Degrees are shorter across than up; everywhere else a pixel has the map's proportions.
        up = across * grid.resolution[1] / grid.resolution[0]
        if grid.is_geographic:
            up = grid.resolution[1] * 111_200
        area = across * up
    wkt = None if grid.crs is None else grid.crs.to_wkt()
    placed = native and grid.on_earth
    return Display(
        width=grid.width,
        height=grid.height,
        crs=None if grid.crs is None else crs_name(grid.crs),
        wkt=wkt,
        transform=tuple(t)[:6],
        native=native,
        extent=extent,
        resolution=resolution,
        levels=levels,
        metres=metres,
        pixel_area=area,
        mercator=fit_mercator(wkt, extent, resolution) if wkt and placed else None,
    )
