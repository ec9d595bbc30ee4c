"""Where pixels lie: the grid of a raster."""

from __future__ import annotations

from dataclasses import dataclass

from affine import Affine
from rasterio.crs import CRS


@dataclass(frozen=True)
class Grid:
    """A coordinate system, an affine transform and a size; no coordinate system means pixels."""

    crs: CRS | None
    transform: Affine
    width: int
    height: int

    @property
    def is_geographic(self) -> bool:
        """Whether coordinates are degrees."""
        return self.crs is not None and bool(self.crs.is_geographic)
