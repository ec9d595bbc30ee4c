"""The polygons of a scene and what is known of each: size, probability, colours, dates, place.

What depends on the images is added up band by band, over the pixels of each polygon, in windows
that hold change: memory does not grow with the scene.

- `brightness` is how much lighter the place became, of values from 0 to 1 as the model saw them.
- `vegetation` is how much its NDVI rose, where both files say which band is the near infrared.
- `compactness` is 1 for a disc and falls to 0 for a thread (4 pi area / perimeter squared).
- `border_m` is how far the polygon is from the edge of what was compared: a change that is cut off
  there may be larger than it seems. It is 0 beside nodata only if that is the scene's edge.
- `review` is for the analyst, and begins as `open`.
"""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import shapely
from numpy.typing import NDArray
from rasterio.windows import Window

from adadino.geo.grid import Grid
from adadino.geo.polygons.components import label_band, label_bands
from adadino.geo.polygons.measure import move, to_metres
from adadino.geo.polygons.regularise import regularise_frame
from adadino.geo.polygons.split import split_frame
from adadino.geo.polygons.vector import bands_of, measures, numbered, rows, trace
from adadino.geo.read.reader import PairReader
from adadino.scene.journal import Journal
from adadino.scene.options import SceneOptions
from adadino.scene.outputs import open_mask
from adadino.scene.pair import OpenDates

if TYPE_CHECKING:
    import geopandas as gpd

COLUMNS = 2048
"""Columns of the images that are read at a time."""


def find_polygons(
    journal: Journal, mask: Path, pair: OpenDates, options: SceneOptions
) -> gpd.GeoDataFrame:
    """Outline and describe the changes of a written mask.

    Returns:
        The columns of `geo.polygons.vector.polygons` and those that this file's beginning lists.
    """
    grid = pair.reader.grid
    with open_mask(mask) as raster:
        pieces = trace(raster, journal)
        frame = rows(pieces, grid, min_area=options.min_area, simplify=options.simplify)
        frame = frame.assign(prob_min=0.0, brightness=0.0)  # an empty layer has its columns, too
        if len(frame):
            seen = _look(raster, journal, pair)
            place = {at: i for i, at in enumerate(zip(seen.row, seen.col, strict=True))}
            order = [place[at] for at in zip(frame["row"], frame["col"], strict=True)]
            for name, values in seen.columns.items():
                frame[name] = values[order]
        if options.split is not None:
            frame = split_frame(frame, partial(_rows, journal), grid, core=options.split)
        if options.regularise:
            frame = regularise_frame(frame, grid)
    frame = numbered(frame.drop(columns=["row", "col"]))
    return _described(frame, grid, pair)


def _rows(journal: Journal, first: int, last: int) -> NDArray[np.float32]:
    return journal.read(window=Window(0, first, journal.width, last - first))


def _described(frame: gpd.GeoDataFrame, grid: Grid, pair: OpenDates) -> gpd.GeoDataFrame:
    area, perimeter = (frame[name].to_numpy() for name in measures(grid))
    frame["compactness"] = 4 * math.pi * area / np.maximum(perimeter, 1e-9) ** 2
    name = "border_px" if grid.crs is None else "border_m"
    frame[name] = _to_border(frame.geometry.to_numpy(), grid)
    if pair.moments is not None:
        frame["date_before"], frame["date_after"] = (moment.day for moment in pair.moments)
    frame["review"] = np.array(["open"] * len(frame), object)
    return frame


def _to_border(shapes: NDArray[np.object_], grid: Grid) -> NDArray[np.float64]:
    """From each polygon to the nearest edge of the scene, in metres (pixels without a CRS)."""
    pixels = move(shapes, ~grid.transform)
    metres = to_metres(grid)
    across, down = math.hypot(metres.a, metres.d), math.hypot(metres.b, metres.e)
    left, top, right, bottom = shapely.bounds(pixels).T
    sides = (
        left * across,
        (grid.width - right) * across,
        top * down,
        (grid.height - bottom) * down,
    )
    nearest: NDArray[np.float64] = np.maximum(np.stack(sides).min(axis=0), 0).round(3)
    return nearest


class _Seen(NamedTuple):
    """What the images show of each change, named by its first pixel."""

    row: NDArray[np.int64]
    col: NDArray[np.int64]
    columns: dict[str, NDArray[np.float64]]


def _look(mask: Any, journal: Journal, pair: OpenDates) -> _Seen:
    found = label_bands(bands_of(mask, journal), width=journal.width)
    count = len(found.components.count)
    least, lighter = np.ones(count), np.zeros(count)
    greener = np.zeros(count)
    infrared = None if pair.infrared is None else pair.infrared()
    try:
        for first, (row, band, chance) in zip(found.firsts, bands_of(mask, journal), strict=True):
            labels, _ = label_band(band)
            for col in range(0, journal.width, COLUMNS):
                part = slice(col, col + COLUMNS)
                at = labels[:, part] > 0
                if not at.any():
                    continue
                which = found.component[first + labels[:, part][at] - 1]
                np.minimum.at(least, which, chance[:, part][at].astype(np.float64))
                window = Window(col, row, at.shape[1], at.shape[0])
                np.add.at(lighter, which, _brighter(pair.reader, window)[at])
                if infrared is not None:
                    np.add.at(greener, which, _greener(pair.reader, infrared, window)[at])
    finally:
        if infrared is not None:
            infrared.close()
    pixels = found.components.count
    columns = {"prob_min": least, "brightness": np.round(lighter / pixels, 4)}
    if infrared is not None:
        columns["vegetation"] = np.round(greener / pixels, 4)
    return _Seen(found.components.row, found.components.col, columns)


def _brighter(reader: PairReader, window: Window) -> NDArray[np.float64]:
    before, after, _ = reader.read_visible(window)
    change: NDArray[np.float64] = (after - before).mean(axis=0, dtype=np.float64)
    return change


def _greener(reader: PairReader, infrared: PairReader, window: Window) -> NDArray[np.float64]:
    """How much the NDVI rose."""
    visible, beyond = reader.read_raw(window), infrared.read_raw(window)
    index = []
    red_of = [bands.rgb[0] for bands in reader.bands]
    reds = visible.before[red_of[0]], visible.after[red_of[1]]
    for red, near in zip(reds, (beyond.before[0], beyond.after[0]), strict=True):
        total = (near + red).astype(np.float64)
        index.append(np.where(total > 0, (near - red) / np.where(total > 0, total, 1), 0))
    return index[1] - index[0]
