"""The polygons of a series: where something changed, between which dates, and how surely.

Pixels that share an edge are one polygon. Its dates are those of most of its pixels; `same_date`
is the share of pixels that have its `first_seen`. Neighbours that changed at different dates are
one polygon with a low share.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from rasterio.windows import Window

from adadino.geo.grid import Grid
from adadino.geo.polygons.components import Labelled, label_band, label_bands
from adadino.geo.polygons.vector import bands_of, measures, numbered, rows, trace
from adadino.scene.options import SceneOptions
from adadino.scene.outputs import open_mask
from adadino.series.maps import PERSISTENCE

if TYPE_CHECKING:
    import geopandas as gpd
    from rasterio.io import DatasetReader


def find_polygons(
    folder: Path, labels: Sequence[str], grid: Grid, options: SceneOptions
) -> gpd.GeoDataFrame:
    """Outline what `maps.write_maps` wrote to a folder, and date it.

    Returns:
        `id`, area and perimeter (`geo.polygons.vector.measures`), `first_seen`, `last_seen`,
        `changes`, `persistence`, `confidence` and `same_date`, the largest first.
    """
    with ExitStack() as stack:
        maps = {
            name: stack.enter_context(open_mask(folder / f"{name}.tif"))
            for name in ("change", "first_change", "last_seen", "changes", "persistence")
        }
        surely = stack.enter_context(open_mask(folder / "confidence.tif"))
        mask = maps.pop("change")
        frame = rows(
            trace(mask, surely), grid, min_area=options.min_area, simplify=options.simplify
        )
        found = label_bands(bands_of(mask, surely), width=mask.width)
        place = zip(found.components.row, found.components.col, strict=True)
        which = {at: number for number, at in enumerate(place)}
        order = [which[at] for at in zip(frame["row"], frame["col"], strict=True)]
        won = {name: _vote(mask, raster, found) for name, raster in maps.items()}
    frame = frame.drop(columns=["row", "col", "prob_max"])
    frame = numbered(frame.rename(columns={"prob_mean": "confidence"}))
    days = np.array([*labels], object)
    for name in ("first_seen", "last_seen"):
        frame[name] = days[won[name.replace("first_seen", "first_change")][0][order]]
    frame["changes"] = won["changes"][0][order].astype(np.int32)
    texts = np.array([text for _, text in PERSISTENCE.values()], object)
    frame["persistence"] = texts[won["persistence"][0][order]]
    frame["same_date"] = np.round(won["first_change"][1][order], 4)
    names = ["first_seen", "last_seen", "changes", "persistence", "confidence", "same_date"]
    return frame[["id", *measures(grid), *names, "geometry"]]


def _vote(
    mask: DatasetReader, raster: DatasetReader, found: Labelled
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The most frequent value of each polygon, the smallest of equals, and its share."""
    votes = np.zeros((len(found.components.count), 256), np.int64)
    for first, (row, band, _) in zip(found.firsts, bands_of(mask, mask), strict=True):
        labels, _ = label_band(band)
        at = labels > 0
        values = raster.read(1, window=Window(0, row, raster.width, len(band)))
        np.add.at(votes, (found.component[first + labels[at] - 1], values[at]), 1)
    most = votes.argmax(axis=1)
    share = votes.max(axis=1, initial=0) / np.maximum(votes.sum(axis=1), 1)
    return most, share
