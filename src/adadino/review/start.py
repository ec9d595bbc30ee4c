"""A new review: the map's polygons, its mask and what it is, in a folder of their own."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import shapely
from numpy.typing import NDArray

from adadino.errors import InputError, WriteError
from adadino.files import write_atomic
from adadino.review.folder import FACTS, FORMAT, MASK, POLYGONS, Facts, Review
from adadino.review.propose import SAMPLE

if TYPE_CHECKING:
    import geopandas as gpd

    from adadino.geo.grid import Grid
    from adadino.geo.read.source import OpenFile

THRESHOLD = 0.5
"""Where the model is least certain, if nobody says otherwise."""


def start_review(
    folder: Path | str,
    *,
    mask: Path | str | None = None,
    probability: Path | str | None = None,
    threshold: float | None = None,
    min_area: float = 0.0,
    seed: int = 0,
    sample: int = SAMPLE,
    name: str | None = None,
    open_file: OpenFile | None = None,
) -> Review:
    """Begin to judge a map.

    Args:
        folder: The review, which is made; it must not hold one.
        mask: The change mask: 1 is change, 0 is none, 255 is nodata.
        probability: The probability of change. Without a mask the change is where it reaches the
            threshold; without a probability all polygons are proposed in random order.
        threshold: The threshold of the map; 0.5 if it is not given.
        min_area: Smaller polygons are not judged, and stay as they are; m2, or pixels without CRS.
        seed: What the random sample depends on.
        sample: How many polygons it has.
        name: What tiles of the map are called; by default as the file of the map.
        open_file: How the rasters are opened.

    Raises:
        InputError: Neither raster is given, or one cannot be read, or they do not fit.
        WriteError: The folder holds a review, or cannot be written.
    """
    from adadino.geo.grid import Grid
    from adadino.geo.polygons.vector import polygons
    from adadino.geo.read.source import open_dataset

    folder, opens = Path(folder), open_file or open_dataset
    if (folder / FACTS).exists():
        raise WriteError(f"{folder} holds a review already; go on with it, or choose another name.")
    if sample < 1:
        raise InputError(f"sample is {sample}; give at least 1.")
    if mask is None and probability is None:
        raise InputError("there is nothing to judge; give a mask, a probability, or both.")
    with ExitStack() as stack:
        chance = stack.enter_context(opens(str(probability))) if probability is not None else None
        given = stack.enter_context(opens(str(mask))) if mask is not None else None
        grid = Grid.of(given if given is not None else chance)
        if chance is not None and not Grid.of(chance).is_close(grid):
            raise InputError(f"{mask} and {probability} lie on different grids; give one map's.")
        limit = THRESHOLD if threshold is None else threshold
        _write_mask(folder / MASK, grid, _flags(given, chance, limit))
        drawn = stack.enter_context(open_dataset(folder / MASK))
        frame = polygons(drawn, chance if chance is not None else drawn, grid, min_area=min_area)
    facts = Facts(
        map="",
        crs=None if grid.crs is None else grid.crs.to_wkt(),
        transform=tuple(grid.transform)[:6],
        width=grid.width,
        height=grid.height,
        threshold=limit,
        seed=seed,
        sample=sample,
        unit="px" if grid.crs is None else "m2",
        name=_plain(name or Path(mask or probability or "scene").stem),
    )
    _write_facts(folder, facts, _rows(frame, grid, known=chance is not None))
    return Review.open(folder)


def _plain(name: str) -> str:
    """A name from which files can be named."""
    return "".join(c if c.isprintable() and c not in "/\\" else "_" for c in name)


def _write_facts(folder: Path, facts: Facts, rows: list[dict[str, Any]]) -> None:
    text = json.dumps(rows, separators=(",", ":"))
    place = f"{facts.crs} {facts.transform} {facts.width} {facts.height}"
    digest = hashlib.sha256(f"{place}\n{text}".encode()).hexdigest()[:16]
    said = {"format": FORMAT, **dataclasses.asdict(facts), "map": digest}
    write_atomic(folder / POLYGONS, text + "\n")
    write_atomic(folder / FACTS, json.dumps(said, indent=1) + "\n")  # last: now it is a review


def _rows(frame: gpd.GeoDataFrame, grid: Grid, *, known: bool) -> list[dict[str, Any]]:
    """The polygons as the review keeps them: outlines on the lattice of pixel corners."""
    from adadino.geo.polygons.measure import move
    from adadino.geo.polygons.vector import measures

    outlines = shapely.transform(move(frame.geometry.to_numpy(), ~grid.transform), np.rint)
    area, _ = measures(grid)
    return [
        {
            "id": int(row.id),
            "area": round(float(getattr(row, area)), 4),
            "prob_mean": round(float(row.prob_mean), 6) if known else None,
            "prob_max": round(float(row.prob_max), 6) if known else None,
            "rings": [_ring(ring) for ring in (outline.exterior, *outline.interiors)],
        }
        for row, outline in zip(frame.itertuples(), outlines, strict=True)
    ]


def _ring(ring: Any) -> list[list[int]]:
    corners: list[list[int]] = np.asarray(ring.coords, dtype=np.int64).tolist()
    return corners


def _flags(mask: Any, chance: Any, threshold: float) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """The mask in bands of rows: the one given, or the probability's at a threshold."""
    from rasterio.windows import Window

    from adadino.geo.write.cog import BLOCK

    source = chance if mask is None else mask
    for row in range(0, source.height, BLOCK):
        band = source.read(1, window=Window(0, row, source.width, min(BLOCK, source.height - row)))
        if mask is None:
            flags = (band >= np.float32(threshold)).astype(np.uint8)
            flags[np.isnan(band)] = 255
        else:
            flags = _checked(band, mask)
        yield row, flags


def _checked(band: NDArray[Any], dataset: Any) -> NDArray[np.uint8]:
    if dataset.nodata not in (None, 0, 1):
        band = np.where(band == dataset.nodata, 255, band)
    if dataset.nodata != 255 and (band == 255).any() and not (band == 1).any():
        raise InputError(
            f"{dataset.name} holds 255 and no 1; a change map has 1 for change and 255 for nodata. "
            "Write it with 1 for change, or say that 255 is nodata (gdal_edit.py -a_nodata 255)."
        )
    if not np.isin(band, (0, 1, 255)).all():
        raise InputError(
            f"{dataset.name} is no change map: it holds the value {_other(band)}; a map has 0, 1"
            " and 255 (nodata). Give a probability as the probability."
        )
    return band.astype(np.uint8)


def _other(band: NDArray[Any]) -> str:
    """A value that a mask does not have."""
    return f"{band[~np.isin(band, (0, 1, 255))].flat[0]:g}"


def _write_mask(path: Path, grid: Grid, rows: Iterator[tuple[int, NDArray[np.uint8]]]) -> None:
    from adadino.geo.write.cog import MASK as LAYER
    from adadino.geo.write.cog import raster_writer

    with raster_writer(path, grid, LAYER, overwrite=True) as out:
        for row, flags in rows:
            out.write(row, flags)
