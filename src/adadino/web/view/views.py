"""The two dates as the page shows them: JPEG in a tiled TIFF with overviews, on the result's grid.

Written once, before the model runs: warped, registered and stretched as the model sees them, so
that the page shows what was compared, from the first minute, and never opens a stranger's file.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from PIL import Image
from rasterio.enums import Resampling
from rasterio.windows import Window

from adadino.files import atomic, write_atomic
from adadino.geo.grid import Grid
from adadino.geo.read.reader import PairReader
from adadino.geo.read.small import read_pair
from adadino.geo.read.source import describe
from adadino.web.door import open_foreign
from adadino.web.view.display import TILE, Display

SIDE = 2048
"""Of the part that is in memory at a time; a multiple of the tiles'."""

PREVIEW = 256
"""Side of a small picture of one image."""


FALSE = ("before-false", "after-false")
"""The dates in false colour: near infrared, red and green as red, green and blue."""


def shows_infrared(reader: PairReader) -> bool:
    """Whether near infrared is among the bands that are read of both dates."""
    return all(len(bands.indexes) > 3 and bands.nir in bands.indexes for bands in reader.bands)


def view_path(folder: Path, layer: str) -> Path:
    """Where a date's picture is."""
    return folder / f"view-{layer}.tif"


def write_views(
    reader: PairReader, display: Display, folder: Path, *, false_colour: bool = False
) -> None:
    """Write both dates of an open pair, in true colour or in false."""
    names = FALSE if false_colour else ("before", "after")
    with ExitStack() as stack:
        stack.enter_context(rasterio.Env(GDAL_TIFF_INTERNAL_MASK="YES", GDAL_PAM_ENABLED="NO"))
        parts = [stack.enter_context(atomic(view_path(folder, n))) for n in names]
        files = [_create(part, reader.grid) for part in parts]
        for row in range(0, reader.grid.height, SIDE // 4):
            for column in range(0, reader.grid.width, SIDE):
                window = Window(
                    column, row,
                    min(SIDE, reader.grid.width - column), min(SIDE // 4, reader.grid.height - row),
                )  # fmt: skip
                seen = reader.read_false(window) if false_colour else reader.read_visible(window)
                for file, image in zip(files, (seen.before, seen.after), strict=True):
                    file.write(np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8), window=window)
                    file.write_mask(seen.valid, window=window)
        for file in files:
            file.close()
        for part in parts:
            _add_overviews(part, display.levels)


def write_preview(path: Path, name: str, output: Path) -> None:
    """Write a small picture of one image, stretched by its own values, as PNG."""
    grid, _ = describe(path, "the image", name=name, open_file=open_foreign)
    step = max(1.0, max(grid.width, grid.height) / PREVIEW)
    shape = max(1, round(grid.height / step)), max(1, round(grid.width / step))
    picture, _ = read_pair(path, path, grid, shape, open_file=open_foreign)
    write_atomic(output, lambda part: Image.fromarray(picture).save(part, format="PNG"))


def _create(path: Path, grid: Grid) -> Any:
    return rasterio.open(
        path, "w", driver="GTiff", width=grid.width, height=grid.height, count=3, dtype="uint8",
        crs=grid.crs, transform=grid.transform, tiled=True, blockxsize=TILE, blockysize=TILE,
        compress="JPEG", jpeg_quality=88, photometric="YCBCR", bigtiff="IF_SAFER",
    )  # fmt: skip


def _add_overviews(path: Path, levels: int) -> None:
    factors = [2**level for level in range(1, levels)]
    if not factors:
        return
    options = {"COMPRESS_OVERVIEW": "JPEG", "PHOTOMETRIC_OVERVIEW": "YCBCR"}
    with rasterio.Env(**options), rasterio.open(path, "r+") as file:
        file.build_overviews(factors, Resampling.average)
