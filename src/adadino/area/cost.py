"""What a region will take, before anything is predicted: tiles, GPU-hours, bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from adadino.area.units import Dates, PlacedDates, Unit, count_tiles
from adadino.geo.read.source import describe, open_dataset
from adadino.geo.tile.tiles import TilePlan
from adadino.scene.options import SceneOptions

RATE = 338.0
"""Tiles a second on one GPU, unless another figure is given: what ViT-L/16 predicts at k = 6 on one
H200 with the engine as scenes run it (docs/performance.md); the model alone, without reading."""


@dataclass(frozen=True)
class Cost:
    """Sums over all units."""

    units: int
    megapixels: float
    tiles: int
    """Tiles that the model sees; those that cross borders between units count more than once."""
    halo: float
    """The share of the tiles that cutting into units adds."""
    gpu_hours: float
    rate: float
    decoded: int
    """Bytes of pixels that are read, after decompression."""
    written: int
    """Bytes of the rasters before compression: more than there will be."""


def estimate(
    scenes: Sequence[PlacedDates],
    units: Sequence[Unit],
    options: SceneOptions,
    *,
    probability: bool,
    rate: float = RATE,
) -> Cost:
    """Estimate what units take.

    Args:
        scenes: The pairs with their grids.
        units: Their units, all or those that are missing.
        options: Tile and overlap.
        probability: Whether probabilities are kept.
        rate: Tiles a second on one GPU.
    """
    by_pair: dict[Dates, list[Unit]] = {scene.dates: [] for scene in scenes}
    for unit in units:
        by_pair[unit.dates].append(unit)
    tiles = alone = decoded = 0
    for scene in scenes:
        mine = by_pair[scene.dates]
        grid = scene.grid
        count = count_tiles(scene, mine, options)
        tiles += count
        share = sum(u.height * u.width for u in mine) / (grid.height * grid.width)
        plan = TilePlan(*grid.shape, tile=options.tile, overlap=options.overlap)
        alone += round(len(plan) * share)
        # GDAL keeps decoded blocks: a unit reads its pixels and half a tile around them, not
        # every tile anew.
        margin = 2 * (options.tile - options.overlap)
        pixels = sum((u.height + margin) * (u.width + margin) for u in mine)
        files = scene.dates.before, scene.dates.after
        decoded += pixels * sum(_pixel_bytes(path, options) for path in files)
    pixels = sum(unit.height * unit.width for unit in units)
    return Cost(
        units=len(units),
        megapixels=pixels / 1e6,
        tiles=tiles,
        halo=tiles / max(alone, 1) - 1,
        gpu_hours=tiles / rate / 3600,
        rate=rate,
        decoded=decoded,
        written=pixels * (5 if probability else 1),
    )


def _pixel_bytes(path: str, options: SceneOptions) -> int:
    """The bytes of a pixel in the bands that are read."""
    _, bands = describe(path, "image", options.bands)
    with open_dataset(path) as dataset:
        kinds = [np.dtype(dataset.dtypes[index - 1]) for index in set(bands.indexes)]
    return sum(kind.itemsize for kind in kinds)
