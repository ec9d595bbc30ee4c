"""Small pictures of a region's rasters, so that a country opens at once.

A virtual raster of a hundred thousand files has each file's own overviews, but whoever looks at all
of it opens all of them. `NAME.vrt.ovr`, which GDAL and QGIS find by its name, holds the whole at a
64th of its size, and smaller ones. Each cell is made small by a worker, once.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import rasterio
from affine import Affine
from numpy.typing import NDArray
from rasterio.enums import Resampling
from rasterio.windows import Window

from adadino.area.join import Cell, cut_cells
from adadino.area.ledger import Done, Ledger, Spread
from adadino.area.units import PlacedDates
from adadino.files import write_atomic
from adadino.geo.grid import Grid
from adadino.geo.write.cog import BLOCK, Layer

FACTOR = 64
LEAST = 16_384
"""Pixels of a side from which a region has overviews of its own: four units of 4096."""


def write_overviews(
    ledger: Ledger,
    vrt: str,
    grid: Grid,
    layer: Layer,
    kind: str,
    members: Sequence[PlacedDates],
    done: Done,
    side: int,
    spread: Spread,
) -> list[str]:
    """Write the overviews of a virtual raster; returns their name, unless it is small.

    Args:
        ledger: Where the units are.
        vrt: The name of the raster.
        grid: Its grid.
        layer: What its pixels mean.
        kind: `mask` or `probability`.
        members: The pairs in it.
        done: Their finished units.
        side: Side of a unit in pixels.
        spread: What runs the pieces of the work.
    """
    name = f"{vrt}.ovr"
    if max(grid.shape) < LEAST:
        ledger.store.remove(name)
        return []
    placed: list[tuple[int, int, Cell]] = []
    for scene in members:
        to_grid = ~grid.transform * scene.grid.transform
        for cell in cut_cells(scene, done[scene.dates], side):
            col, row = to_grid * (cell.col, cell.row)
            placed.append((round(row / FACTOR), round(col / FACTOR), cell))
        folder = f"pairs/{scene.dates.name}/small-{kind}"
        there = ledger.store.sizes(folder)
        new = [c for _, _, c in placed if c.units[0].dates == scene.dates and _name(c) not in there]
        for _ in spread(partial(_shrink, ledger, layer, kind), new):
            pass
    height, width = (math.ceil(size / FACTOR) for size in grid.shape)
    transform = grid.transform * Affine.scale(FACTOR)

    def write(path: Any) -> None:
        profile = {
            "driver": "GTiff", "dtype": layer.dtype, "nodata": layer.nodata, "count": 1,
            "height": height, "width": width, "crs": grid.crs, "transform": transform,
            "tiled": True, "blockxsize": BLOCK, "blockysize": BLOCK, "compress": "deflate",
            "bigtiff": "if_safer", "sparse_ok": True,
        }  # fmt: skip
        with rasterio.open(path, "w", **profile) as raster:
            for row, col, cell in placed:
                small = _load(ledger, kind, cell)
                rows, cols = min(len(small), height - row), min(small.shape[1], width - col)
                raster.write(small[:rows, :cols], 1, window=Window(col, row, cols, rows))
            levels = [2**n for n in range(1, 16) if max(height, width) / 2**n >= BLOCK / 4]
            raster.build_overviews(levels, Resampling[layer.overviews.lower()])

    write_atomic(ledger.store.path(name), write)
    ledger.store.publish(name)
    return [name]


def _shrink(ledger: Ledger, layer: Layer, kind: str, cell: Cell) -> None:
    """Read the units of a cell at a 64th of their size."""
    bottom = max(unit.row + unit.height for unit in cell.units) - cell.row
    right = max(unit.col + unit.width for unit in cell.units) - cell.col
    shape = math.ceil(bottom / FACTOR), math.ceil(right / FACTOR)
    small = np.full(shape, layer.nodata, layer.dtype)
    for unit in cell.units:
        how = Resampling[layer.overviews.lower()]
        with rasterio.open(f"{ledger.where}/{ledger.file(unit, kind)}") as raster:
            for top, height in _spans(unit.height):
                for left, width in _spans(unit.width):
                    rows, cols = math.ceil(height / FACTOR), math.ceil(width / FACTOR)
                    row = (unit.row - cell.row + top) // FACTOR
                    col = (unit.col - cell.col + left) // FACTOR
                    window = Window(left, top, width, height)
                    small[row : row + rows, col : col + cols] = raster.read(
                        1, window=window, out_shape=(rows, cols), resampling=how
                    )
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, small=small)
    ledger.write(_file(kind, cell), file.getvalue())


def _spans(size: int) -> list[tuple[int, int]]:
    """Begin and length of the whole small pixels of a side, and of the rest."""
    whole = size // FACTOR * FACTOR
    return [span for span in ((0, whole), (whole, size - whole)) if span[1]]


def _load(ledger: Ledger, kind: str, cell: Cell) -> NDArray[Any]:
    with np.load(io.BytesIO(ledger.store.read(_file(kind, cell)) or b"")) as file:
        small: NDArray[Any] = file["small"]
        return small


def _name(cell: Cell) -> str:
    return cell.file.rpartition("/")[2]


def _file(kind: str, cell: Cell) -> str:
    return f"pairs/{cell.units[0].dates.name}/small-{kind}/{_name(cell)}"
