"""What changed, at a threshold chosen afterwards: from the stored probability, without the model.

- For the screen, polygons of a large scene are traced on fewer pixels, so that a slider's answer
  comes at once. Downloads are always traced on all of them.
- The smallest area applies to polygons, as in `adadino predict`; the mask is the threshold's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import rasterio
import shapely
from numpy.typing import NDArray
from rasterio.enums import Resampling
from rasterio.features import rasterize
from rasterio.windows import Window

from adadino.geo.grid import Grid
from adadino.geo.polygons.vector import polygons
from adadino.geo.read.small import coarse_grid, read_pair
from adadino.geo.read.source import open_dataset
from adadino.geo.write.cog import BLOCK, MASK, raster_writer
from adadino.geo.write.layers import write_layer
from adadino.geo.write.overview import (
    decimated_shape,
    ground_span,
    write_overview,
)
from adadino.web.view.display import Display
from adadino.web.view.tiles import PROBABILITY
from adadino.web.view.views import view_path

if TYPE_CHECKING:
    import geopandas as gpd

SCREEN_PIXELS = 16_000_000
"""More are not traced for the screen: about two seconds of work."""
SCREEN_POLYGONS = 5000
"""More are not sent to the screen; the largest come first."""


@dataclass(frozen=True, eq=False)
class Cut:
    """The polygons of a scene at a threshold, the largest first."""

    frame: gpd.GeoDataFrame
    """In map coordinates: the scene's, or pixels with y down."""
    step: int
    """Pixels of the scene for one that was traced, along a row; 1 is exact."""
    share: float
    """Of the valid area that changed."""


def cut_for_screen(folder: Path, display: Display, threshold: float) -> Cut:
    """Trace the change for the page."""
    grid = display.grid
    step = max(1, math.ceil(math.sqrt(grid.width * grid.height / SCREEN_PIXELS)))
    shape = math.ceil(grid.height / step), math.ceil(grid.width / step)
    with rasterio.Env(), open_dataset(folder / PROBABILITY) as dataset:
        chance = dataset.read(1, out_shape=shape, resampling=Resampling.average)
    mask = _flags(chance, threshold)
    small = grid if step == 1 else coarse_grid(grid, shape)
    frame = polygons(mask, chance, small)
    if step > 1 and grid.crs is None:  # lengths were counted in larger pixels
        across, down = grid.width / shape[1], grid.height / shape[0]
        frame["area_m2"] *= across * down
        frame["perimeter_m"] *= math.sqrt(across * down)
    if not display.native:
        frame = frame.set_crs(None, allow_override=True)
        frame["geometry"] = shapely.transform(frame.geometry.values, lambda p: _moved(p, grid))
    return Cut(frame, step, _share(mask))


def as_geojson(cut: Cut, display: Display, *, threshold: float, min_area: float) -> dict[str, Any]:
    """A GeoJSON FeatureCollection in map coordinates, and what the page says beside it."""
    frame = cut.frame[cut.frame["area_m2"] >= min_area]
    shown = frame.head(SCREEN_POLYGONS)
    columns = ("id", "area_m2", "perimeter_m", "prob_mean", "prob_max")
    values = [shown[name].round(4).tolist() for name in columns]
    features = [
        {
            "type": "Feature",
            "id": row[0],
            "geometry": shapely.geometry.mapping(shape),
            "properties": dict(zip(columns, row, strict=True)),
        }
        for shape, row in zip(shown.geometry, zip(*values, strict=True), strict=True)
    ]
    return {
        "type": "FeatureCollection",
        "features": features,
        "count": len(frame),
        "area": round(float(frame["area_m2"].sum()), 3),
        "unit": "px" if display.crs is None else "m2",
        "change_fraction": cut.share,
        "step": cut.step,
        "threshold": threshold,
        "min_area": min_area,
        "coordinates": (display.crs if display.native else None) or "pixels, x right, y down",
    }


def write_mask(folder: Path, display: Display, path: Path, *, threshold: float) -> None:
    """Write the change mask as a COG."""
    with rasterio.Env(), open_dataset(folder / PROBABILITY) as dataset:
        tags = {k: v for k, v in dataset.tags().items() if k.startswith(("ADADINO_", "TIFFTAG_"))}
        tags["ADADINO_THRESHOLD"] = str(threshold)
        with raster_writer(path, display.grid, MASK, tags=tags) as out:
            for row, block in _rows(dataset):
                out.write(row, _flags(block, threshold))


def write_polygons(
    folder: Path, display: Display, path: Path, *, threshold: float, min_area: float
) -> None:
    """Write the polygons, traced on every pixel; the suffix chooses the format."""
    with _mask_beside(folder, display, path, threshold) as (mask, chance):
        write_layer(polygons(mask, chance, display.grid, min_area=min_area), path)


def write_picture(
    folder: Path, display: Display, path: Path, *, threshold: float, min_area: float, title: str
) -> None:
    """Write the overview of before, after and change."""
    grid = display.grid
    shape = decimated_shape(grid.height, grid.width)
    with _mask_beside(folder, display, path, threshold) as (mask, chance):
        frame = polygons(mask, chance, grid, min_area=min_area)
        change = mask.read(1, out_shape=shape, resampling=Resampling.mode)
        share = _share_of_rows(mask)
    if len(frame) and shape != (grid.height, grid.width):
        # What is smaller than a pixel of the picture is brought back.
        to_map = coarse_grid(grid, shape).transform
        drawn = rasterize(frame.geometry, shape, transform=to_map, all_touched=True, dtype="uint8")
        change[(drawn == 1) & (change != MASK.nodata)] = 1
    dates = view_path(folder, "before"), view_path(folder, "after")
    before, after = read_pair(*dates, grid, shape)
    span, unit = ground_span(grid)
    write_overview(path, before, after, change, title=title, span=span, unit=unit, share=share)


@contextmanager
def _mask_beside(
    folder: Path, display: Display, path: Path, threshold: float
) -> Iterator[tuple[Any, Any]]:
    """The mask as a temporary file and the probability, both open."""
    draft = path.with_name("mask-of-this.tif")
    write_mask(folder, display, draft, threshold=threshold)
    try:
        with (
            rasterio.Env(),
            open_dataset(draft) as mask,
            open_dataset(folder / PROBABILITY) as chance,
        ):
            yield mask, chance
    finally:
        draft.unlink(missing_ok=True)


def _rows(dataset: Any) -> Iterator[tuple[int, NDArray[Any]]]:
    for row in range(0, dataset.height, BLOCK):
        rows = min(BLOCK, dataset.height - row)
        yield row, dataset.read(1, window=Window(0, row, dataset.width, rows))


def _flags(chance: NDArray[np.float32], threshold: float) -> NDArray[np.uint8]:
    """0 no, 1 yes, 255 nodata."""
    flags = (chance >= np.float32(threshold)).astype(np.uint8)
    flags[np.isnan(chance)] = MASK.nodata
    return flags


def _share(mask: NDArray[np.uint8]) -> float:
    return float((mask == 1).sum() / max(1, (mask != MASK.nodata).sum()))


def _share_of_rows(mask: Any) -> float:
    changed = valid = 0
    for _, block in _rows(mask):
        changed += int((block == 1).sum())
        valid += int((block != MASK.nodata).sum())
    return changed / max(1, valid)


def _moved(points: NDArray[np.float64], grid: Grid) -> NDArray[np.float64]:
    """From the scene's coordinates to pixels."""
    back = ~grid.transform
    x, y = points[:, 0], points[:, 1]
    return np.stack([back.a * x + back.b * y + back.c, back.d * x + back.e * y + back.f], axis=1)
