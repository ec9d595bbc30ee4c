"""The rule of a series applied to rasters: window by window, so that memory does not grow.

All maps lie on the first date's grid, as one scene with it would. A pair on other pixels is laid on
them by its nearest pixel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from numpy.typing import NDArray
from rasterio.enums import Resampling
from rasterio.vrt import WarpedVRT
from rasterio.windows import Window

from adadino.geo.grid import Grid
from adadino.geo.read.source import open_dataset
from adadino.geo.write.cog import BLOCK, MASK, PROBABILITY, Layer, raster_writer
from adadino.geo.write.qml import classes_qml, write_qml
from adadino.series.fuse import CHANGED, NODATA, Fused, Pair, fuse

Colour = tuple[int, int, int]
EARLY, LATE = (253, 216, 53), (94, 0, 66)
"""The colours of the first and of the last date."""
PERSISTENCE = {
    0: ((235, 235, 235), "no change"),
    1: ((230, 60, 30), "lasting"),
    2: ((33, 102, 172), "went back"),
    3: ((190, 190, 190), "too short to count"),
    4: ((244, 165, 130), "at the end only"),
}
DATED = ("first_change", "last_change", "last_seen")
CACHE = 128 * 2**20
"""Bytes of decoded blocks that GDAL may keep."""


def date_colours(dates: int) -> list[Colour]:
    """A colour for each date after the first, from early to late."""
    steps = np.linspace(0, 1, max(dates - 1, 1))[:, None]
    mixed = np.rint((1 - steps) * EARLY + steps * np.array(LATE)).astype(int)
    return [(int(r), int(g), int(b)) for r, g, b in mixed]


def write_maps(
    folder: Path,
    pairs: Mapping[Pair, Path],
    labels: Sequence[str],
    grid: Grid,
    *,
    threshold: float,
    stays: int,
    tags: Mapping[str, object],
) -> tuple[int, int]:
    """Fuse the pairs' probabilities and write the maps, with styles for QGIS.

    Args:
        folder: Where to.
        pairs: The probabilities, by the numbers of their dates.
        labels: The dates.
        grid: Where the maps lie.
        threshold: As for `fuse`.
        stays: As for `fuse`.
        tags: What the rasters say of themselves.

    Returns:
        Changed and valid pixels.
    """
    layers = _layers(labels)
    changed = valid = 0
    with ExitStack() as stack:
        stack.enter_context(rasterio.Env(GDAL_CACHEMAX=CACHE))
        sources = {pair: stack.enter_context(_Source(path, grid)) for pair, path in pairs.items()}
        writers = {
            name: stack.enter_context(
                raster_writer(folder / f"{name}.tif", grid, layer, tags=tags, overwrite=True)
            )
            for name, layer in layers.items()
        }
        for row in range(0, grid.height, BLOCK):
            rows = min(BLOCK, grid.height - row)
            band: dict[str, NDArray[Any]] = {
                name: np.empty((rows, grid.width), layer.dtype) for name, layer in layers.items()
            }
            for part, fused in _fused(sources, len(labels), grid, row, rows, threshold, stays):
                for name, values in fused._asdict().items():
                    band[name][:, part] = values
                persistence = fused.persistence
                flags = np.isin(persistence, CHANGED).astype(np.uint8)
                flags[persistence == NODATA] = NODATA
                band["change"][:, part] = flags
            changed += int(np.count_nonzero(band["change"] == 1))
            valid += int(np.count_nonzero(band["change"] != NODATA))
            for name, writer in writers.items():
                writer.write(row, band[name])
    _write_styles(folder, labels)
    return changed, valid


def _fused(
    sources: Mapping[Pair, _Source],
    dates: int,
    grid: Grid,
    row: int,
    rows: int,
    threshold: float,
    stays: int,
) -> Iterator[tuple[slice, Fused]]:
    """The windows of a band of rows."""
    for col in range(0, grid.width, BLOCK):
        window = Window(col, row, min(BLOCK, grid.width - col), rows)
        chances = {pair: source.read(window) for pair, source in sources.items()}
        fused = fuse(chances, dates, threshold=threshold, stays=stays)
        yield slice(col, col + int(window.width)), fused


class _Source:
    """A pair's probability on the series' grid."""

    def __init__(self, path: Path, grid: Grid) -> None:
        self._file = open_dataset(path)
        self._raster: Any = self._file
        if not Grid.of(self._file).is_close(grid):
            self._raster = WarpedVRT(
                self._file, crs=grid.crs, transform=grid.transform, width=grid.width,
                height=grid.height, resampling=Resampling.nearest, nodata=np.nan,
            )  # fmt: skip

    def __enter__(self) -> _Source:
        return self

    def __exit__(self, *error: object) -> None:
        self._raster.close()
        self._file.close()

    def read(self, window: Window) -> NDArray[np.float32]:
        values: NDArray[np.float32] = self._raster.read(1, window=window)
        return values


def _layers(labels: Sequence[str]) -> dict[str, Layer]:
    colours = dict(enumerate(date_colours(len(labels)), 1))
    clear = {0: (0, 0, 0, 0), NODATA: (0, 0, 0, 0)}
    dated = clear | {number: (*colour, 255) for number, colour in colours.items()}
    lasts = clear | {code: (*colour, 255) for code, (colour, _) in PERSISTENCE.items() if code}
    numbers = ", ".join(f"{number} {label}" for number, label in enumerate(labels) if number)
    said = f"0 no change, {numbers}, 255 nodata" if len(numbers) < 500 else "see ADADINO_DATES"

    def of(text: str, table: Mapping[int, tuple[int, int, int, int]]) -> Layer:
        return Layer(text, "uint8", NODATA, "STANDARD", "MODE", table)

    meanings = "; ".join(f"{code} {text}" for code, (_, text) in PERSISTENCE.items())
    return {
        "change": MASK,
        "first_change": of(f"date of the first change: {said}", dated),
        "last_change": of(f"date of the last change: {said}", dated),
        "last_seen": of(f"last date that differs from the first: {said}", dated),
        "changes": of("number of changes, 255 nodata", {}),
        "persistence": of(f"persistence: {meanings}; 255 nodata", lasts),
        "confidence": PROBABILITY,
    }


def _write_styles(folder: Path, labels: Sequence[str]) -> None:
    """What QGIS shows: the dates in the legend."""
    colours = date_colours(len(labels))
    days = [(number, colours[number - 1], labels[number]) for number in range(1, len(labels))]
    for name in DATED:
        (folder / f"{name}.qml").write_text(classes_qml(days), encoding="utf-8")
    codes = [(code, colour, text) for code, (colour, text) in PERSISTENCE.items() if code]
    (folder / "persistence.qml").write_text(classes_qml(codes), encoding="utf-8")
    write_qml(folder / "change.qml", "mask", "polygons")
