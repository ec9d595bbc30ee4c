"""Miniature rasters for the tests: each says what is special about it in its arguments."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from affine import Affine
from rasterio.errors import NotGeoreferencedWarning
from rasterio.windows import Window

from adadino.geo.read.raster import open_pair
from adadino.geo.read.reader import PairReader, PairWindow
from adadino.geo.tile.tiles import TilePlan

UTM = "EPSG:32631"
NORTH_UP = Affine(2.0, 0.0, 500_000.0, 0.0, -2.0, 4_000_000.0)
H, W = 40, 60  # not square, so that swapped axes show


def write(
    path: Path,
    values: np.ndarray,
    *,
    transform: Affine | None = NORTH_UP,
    crs: str | None = UTM,
    mask: np.ndarray | None = None,
    internal_mask: bool = False,
    colormap: dict[int, tuple[int, int, int]] | None = None,
    **profile: Any,
) -> Path:
    """Write (bands, h, w) to a GeoTIFF, or whatever the driver in the profile writes."""
    count, height, width = values.shape
    profile = {"driver": "GTiff", "dtype": values.dtype, "count": count} | profile
    if transform is not None:
        profile |= {"transform": transform, "crs": crs}
    with warnings.catch_warnings(), rasterio.Env(GDAL_TIFF_INTERNAL_MASK=internal_mask):
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(path, "w", width=width, height=height, **profile) as file:
            file.write(values)
            if mask is not None:
                file.write_mask(mask)
            if colormap is not None:
                file.write_colormap(1, colormap)
    return path


def noise(
    bands: int, height: int, width: int, *, dtype: str = "uint8", low: int = 1, high: int = 255
) -> np.ndarray:
    """Return the same random values on every call."""
    return np.random.default_rng(0).integers(low, high, (bands, height, width)).astype(dtype)


def everything(reader: PairReader) -> PairWindow:
    """Read the whole pair."""
    return reader.read(Window(0, 0, reader.grid.width, reader.grid.height))


def read(before: Path | str, after: Path | str, **settings: object) -> PairWindow:
    """Open two images, read them whole and close them."""
    with open_pair(before, after, **settings) as reader:  # type: ignore[arg-type]
        return everything(reader)


def bilinear(values: np.ndarray, columns: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Interpolate (h, w) at positions in pixels, whose centres lie at halves."""
    column, row = columns - 0.5, rows - 0.5
    left, top = np.floor(column).astype(int), np.floor(row).astype(int)
    u, v = column - left, row - top
    upper = values[top, left] * (1 - u) + values[top, left + 1] * u
    lower = values[top + 1, left] * (1 - u) + values[top + 1, left + 1] * u
    return upper * (1 - v) + lower * v


class MovedPlan(TilePlan):
    """A plan whose tiles lie elsewhere: the map must not show where they lie."""

    def __init__(self, height, width, *, tile, overlap, offset):
        super().__init__(height, width, tile=tile, overlap=overlap)
        self._rows = _moved(self._rows, height, tile, offset[0])
        self._cols = _moved(self._cols, width, tile, offset[1])


def _moved(starts, length, tile, offset):
    first = -((-starts.start - offset) % starts.step)
    count = max(1, math.ceil((length - first - tile) / starts.step) + 1)
    return range(first, first + count * starts.step, starts.step)
