"""Both dates in few pixels, for pictures.

They are read straight onto the small grid, with overviews where the files have them, and stretched
jointly, as the model saw them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import rasterio
from affine import Affine
from numpy.typing import NDArray
from rasterio.enums import Resampling
from rasterio.windows import Window

from adadino.geo.grid import Grid, match
from adadino.geo.read.bands import Bands
from adadino.geo.read.source import ImagePath, OpenFile, Source, Warp, describe, open_dataset
from adadino.geo.read.stretch import BYTES, Stretch, fit_stretch

Picture = NDArray[np.uint8]

STRIP_PIXELS = 8_000_000
"""How much of an image is in memory at a time while it is read small."""


def coarse_grid(grid: Grid, shape: tuple[int, int]) -> Grid:
    """The grid of the same place in fewer pixels, `shape` high and wide."""
    height, width = shape
    step = Affine.scale(grid.width / width, grid.height / height)
    return Grid(grid.crs, grid.transform * step, width, height)


def read_pair(
    before: ImagePath,
    after: ImagePath,
    grid: Grid,
    shape: tuple[int, int],
    *,
    bands: Sequence[int] | None = None,
    scale: tuple[float, float] | None = None,
    shift: tuple[float, float] = (0.0, 0.0),
    window: Window | None = None,
    open_file: OpenFile = open_dataset,
) -> tuple[Picture, Picture]:
    """Read both dates small, for display.

    Args:
        before: The first date.
        after: The second date.
        grid: The result's grid.
        shape: Height and width to read it in; see `geo.write.overview.decimated_shape`.
        bands: As for `open_pair`.
        scale: As for `open_pair`.
        shift: Rows and columns of `grid` by which `after` is moved, as for `open_pair`.
        window: The part of `grid` to read; all of it if left out.
        open_file: How the dates are opened.

    Returns:
        Both dates, (h, w, 3), stretched alike; black where a date has no data.

    Raises:
        InputError: An image cannot be read.
    """
    # In it GDAL's remarks go to the log instead of the terminal; no pixel is needed twice.
    with rasterio.Env(GDAL_CACHEMAX=64):
        read = _read_both(before, after, grid, window, shape, bands, shift, open_file)
    (first, seen_first, bytes_first), (second, seen_second, bytes_second) = read
    both = seen_first & seen_second
    stretch = BYTES
    if scale is not None:
        stretch = Stretch.between(*scale)
    elif not (bytes_first and bytes_second) and both.any():
        stretch = fit_stretch(first[:, both], second[:, both])
    return _displayed(stretch, first, seen_first), _displayed(stretch, second, seen_second)


def _read_both(
    before: ImagePath,
    after: ImagePath,
    grid: Grid,
    window: Window | None,
    shape: tuple[int, int],
    bands: Sequence[int] | None,
    shift: tuple[float, float],
    open_file: OpenFile,
) -> list[tuple[NDArray[np.float32], NDArray[np.bool_], bool]]:
    """Raw values (3, h, w), valid pixels (h, w) and whether the file holds bytes, of each date."""
    height, width = shape
    place = grid if window is None else grid.part(window)
    read = []
    for role, path, (down, right) in (("before", before, (0.0, 0.0)), ("after", after, shift)):
        own, chosen = describe(path, role, bands, open_file=open_file)
        meeting = match(grid, own)
        rows, columns = place.height / height, place.width / width
        finest = min(meeting.density[0] * columns, meeting.density[1] * rows)
        # The mean of 3 x 3 single pixels shows as much as that of all, in a fifth of the time.
        each = 3 if finest > 3 else 1
        method = Resampling.nearest if finest > 3 else Resampling.bilinear
        rows, columns = rows / each, columns / each
        density = meeting.density[0] * columns, meeting.density[1] * rows
        target = coarse_grid(place, (height * each, width * each))
        warp = Warp(meeting.after, target, density, method, (down / rows, right / columns))
        read.append((*_mean(*_read_strips(path, chosen, warp, open_file), each), chosen.is_uint8))
    return read


def _read_strips(
    path: ImagePath, bands: Bands, warp: Warp, open_file: OpenFile
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Read an image in flat strips, because GDAL loads all that a block of the target needs."""
    target = warp.target
    values = np.empty((3, target.height, target.width), np.float32)
    valid = np.empty((target.height, target.width), np.bool_)
    step = max(1, int(STRIP_PIXELS / (warp.density[0] * warp.density[1] * target.width)))
    for top in range(0, target.height, step):
        rows = min(step, target.height - top)
        strip = target.part(Window(0, top, target.width, rows))
        placed = dataclasses.replace(warp, target=strip)
        source = Source(path, bands, warp=placed, open_file=open_file)
        try:
            here = slice(top, top + rows)
            values[:, here], valid[here] = source.read(Window(0, 0, target.width, rows))
        finally:
            source.close()
    return values, valid


def _mean(
    values: NDArray[np.float32], valid: NDArray[np.bool_], each: int
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """The mean of the valid among `each` x `each` pixels; valid where one is."""
    height, width = valid.shape[0] // each, valid.shape[1] // each
    blocks = np.where(valid, values, 0).reshape(3, height, each, width, each)
    counts = valid.reshape(height, each, width, each).sum(axis=(1, 3))
    return (blocks.sum(axis=(2, 4)) / np.maximum(counts, 1)).astype(np.float32), counts > 0


def _displayed(stretch: Stretch, values: NDArray[np.float32], valid: NDArray[np.bool_]) -> Picture:
    shown = np.where(valid, stretch(np.where(valid, values, 0)), 0)
    return np.moveaxis(np.rint(255 * shown).astype(np.uint8), 0, -1)  # (3, h, w) -> (h, w, 3)
