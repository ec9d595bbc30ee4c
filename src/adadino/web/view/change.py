"""What changed, at a threshold chosen afterwards: from the stored probability, without the model.

- For the screen, polygons of a large scene are traced on fewer pixels, so that a slider's answer
  comes at once. Downloads are always traced on all of them.
- *Smallest polygon* holds for all: polygons, mask, picture and share of the area leave out the same
  changes, and fill the holes that are as small.
- All of it runs in workers (`jobs.tasks`): it takes seconds, and reads what another process wrote.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import rasterio
import shapely
from numpy.typing import NDArray
from rasterio.enums import Resampling
from rasterio.features import rasterize
from rasterio.windows import Window

from adadino import review
from adadino.files import write_atomic
from adadino.geo.grid import Grid
from adadino.geo.polygons.vector import measures, polygons, sieved
from adadino.geo.read.small import coarse_grid, read_pair
from adadino.geo.write.cog import BLOCK, MASK, raster_writer
from adadino.geo.write.layers import write_layer
from adadino.geo.write.overview import (
    decimated_shape,
    draw_overview,
    ground_span,
    write_overview,
)
from adadino.review import Review, start_review
from adadino.web.door import open_foreign
from adadino.web.view.display import Display
from adadino.web.view.tiles import PROBABILITY
from adadino.web.view.views import view_path

if TYPE_CHECKING:
    import geopandas as gpd

SCREEN_PIXELS = 16_000_000
"""More are not traced for the screen: about two seconds of work."""
SCREEN_POLYGONS = 5000
"""More are not sent to the screen; the largest come first."""


def write_cut(
    folder: Path, display: Display, output: Path, *, threshold: float, min_area: float
) -> None:
    """Write the polygons for the screen as JSON: figures of all, features of the largest."""
    grid = display.grid
    step = max(1, math.ceil(math.sqrt(grid.width * grid.height / SCREEN_PIXELS)))
    shape = math.ceil(grid.height / step), math.ceil(grid.width / step)
    with rasterio.Env(), open_foreign(folder / PROBABILITY) as dataset:
        chance = dataset.read(1, out_shape=shape, resampling=Resampling.average)
    small = grid if step == 1 else coarse_grid(grid, shape)
    # Without a coordinate system lengths are counted in these larger pixels.
    larger = 1.0 if grid.crs else grid.width * grid.height / (shape[0] * shape[1])
    mask = _flags(chance, threshold)
    if min_area > 0:
        bands = sieved(mask, small, min_area=min_area / larger, fill=True)
        mask = np.concatenate([band for _, band in bands])
    frame = polygons(mask, chance, small)
    area, perimeter = measures(grid)
    frame[area] *= larger
    frame[perimeter] *= math.sqrt(larger)
    if not display.native:
        frame = frame.set_crs(None, allow_override=True)
        frame["geometry"] = shapely.transform(frame.geometry.values, lambda p: _moved(p, grid))
    cut = {
        "step": step,
        "count": len(frame),
        "area": float(frame[area].sum()),
        "change_fraction": int((mask == 1).sum()) / max(1, int((mask != MASK.nodata).sum())),
        "features": _features(frame.head(SCREEN_POLYGONS), (area, perimeter)),
    }
    write_atomic(output, json.dumps(cut))


def _features(frame: gpd.GeoDataFrame, lengths: tuple[str, str]) -> list[dict[str, Any]]:
    columns = ("id", *lengths, "prob_mean", "prob_max")
    values = [frame[name].round(4).tolist() for name in columns]
    return [
        {
            "type": "Feature",
            "id": row[0],
            "geometry": shapely.geometry.mapping(shape),
            "properties": dict(zip(columns, row, strict=True)),
        }
        for shape, row in zip(frame.geometry, zip(*values, strict=True), strict=True)
    ]


def write_mask(
    folder: Path, display: Display, output: Path, *, threshold: float, min_area: float
) -> None:
    """Write the change mask as a COG."""
    with rasterio.Env(), open_foreign(folder / PROBABILITY) as dataset:
        tags = {k: v for k, v in dataset.tags().items() if k.startswith(("ADADINO_", "TIFFTAG_"))}
        tags["ADADINO_THRESHOLD"] = str(threshold)
        if min_area > 0:
            tags["ADADINO_MIN_AREA"] = str(min_area)
            with _draft(dataset, display, output, threshold) as draft:
                rows = sieved(draft, display.grid, min_area=min_area, fill=True)
                _write_rows(output, display, rows, tags)
            return
        rows = ((row, _flags(block, threshold)) for row, block in _rows(dataset))
        _write_rows(output, display, rows, tags)


def _write_rows(
    path: Path,
    display: Display,
    rows: Iterator[tuple[int, NDArray[np.uint8]]],
    tags: dict[str, str],
) -> None:
    with raster_writer(path, display.grid, MASK, tags=tags) as out:
        for row, block in rows:
            out.write(row, block)


@contextmanager
def _draft(chance: Any, display: Display, output: Path, threshold: float) -> Iterator[Any]:
    """The mask of all polygons as a temporary file, open."""
    draft = output.with_name(f"all-of-{output.name}.tif")
    rows = ((row, _flags(block, threshold)) for row, block in _rows(chance))
    try:
        _write_rows(draft, display, rows, {})
        with open_foreign(draft) as opened:
            yield opened
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def _changed(
    folder: Path, display: Display, output: Path, threshold: float, min_area: float
) -> Iterator[tuple[Any, Any]]:
    """The mask as a temporary file, and the probability, both open."""
    mask = output.with_name(f"mask-of-{output.name}.tif")
    try:
        write_mask(folder, display, mask, threshold=threshold, min_area=min_area)
        with (
            rasterio.Env(),
            open_foreign(mask) as changed,
            open_foreign(folder / PROBABILITY) as chance,
        ):
            yield changed, chance
    finally:
        mask.unlink(missing_ok=True)


def write_polygons(
    folder: Path, display: Display, output: Path, *, threshold: float, min_area: float
) -> None:
    """Write the polygons, traced on every pixel; the suffix chooses the format."""
    with _changed(folder, display, output, threshold, min_area) as (mask, chance):
        write_layer(polygons(mask, chance, display.grid), output)


def write_picture(
    folder: Path, display: Display, output: Path, *, threshold: float, min_area: float, title: str
) -> None:
    """Write the overview of before, after and change."""
    grid = display.grid
    shape = decimated_shape(grid.height, grid.width)
    with _changed(folder, display, output, threshold, min_area) as (mask, chance):
        frame = polygons(mask, chance, grid)
        change = mask.read(1, out_shape=shape, resampling=Resampling.mode)
        share = _share_of_rows(mask)
        remark = chance.tags().get("ADADINO_DOMAIN")
    if len(frame) and shape != (grid.height, grid.width):
        # What is smaller than a pixel of the picture is brought back.
        to_map = coarse_grid(grid, shape).transform
        drawn = rasterize(frame.geometry, shape, transform=to_map, all_touched=True, dtype="uint8")
        change[(drawn == 1) & (change != MASK.nodata)] = 1
    dates = view_path(folder, "before"), view_path(folder, "after")
    before, after = read_pair(*dates, grid, shape, open_file=open_foreign)
    span, unit = ground_span(grid)
    picture = draw_overview(
        before, after, change, title=title, span=span, unit=unit, share=share, remark=remark
    )
    write_overview(output, picture)


def write_review(
    folder: Path, display: Display, output: Path, *, threshold: float, min_area: float
) -> None:
    """Begin a review of the map, in the folder of `output`."""
    start_review(
        output.parent, probability=folder / PROBABILITY, threshold=threshold, min_area=min_area,
        open_file=open_foreign,
    )  # fmt: skip


def write_verdicts(folder: Path, display: Display, output: Path) -> None:
    """Write the verdicts of a review as a layer."""
    review.write_verdicts(Review.open(folder / "review"), output)


def write_corrected(folder: Path, display: Display, output: Path) -> None:
    """Write the mask as a review corrects it."""
    review.write_mask(Review.open(folder / "review"), output)


def _rows(dataset: Any) -> Iterator[tuple[int, NDArray[Any]]]:
    for row in range(0, dataset.height, BLOCK):
        rows = min(BLOCK, dataset.height - row)
        yield row, dataset.read(1, window=Window(0, row, dataset.width, rows))


def _flags(chance: NDArray[np.float32], threshold: float) -> NDArray[np.uint8]:
    """0 no, 1 yes, 255 nodata."""
    flags = (chance >= np.float32(threshold)).astype(np.uint8)
    flags[np.isnan(chance)] = MASK.nodata
    return flags


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
