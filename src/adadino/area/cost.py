"""What a region will take, before anything is predicted: tiles, GPU-hours, bytes, memory, money.

Units, tiles and pixels are counted as the run counts them. GPU-hours follow from a rate, which is
measured on a GPU of one's own. Bytes and polygons follow from a finished region of the same kind
(`like`), else from the synthetic world's. `find_limits` says what will break.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from adadino.area.blocks import count_tiles, cut_blocks
from adadino.area.polygons import FEW
from adadino.area.store import is_remote, open_store
from adadino.area.units import Dates, PlacedDates, Unit
from adadino.errors import InputError
from adadino.geo.grid import crs_name
from adadino.geo.read.source import describe, open_dataset
from adadino.geo.tile.tiles import TilePlan
from adadino.scene.options import SceneOptions

RATE = 338.0
"""Tiles a second on one GPU, unless another figure is given: what ViT-L/16 predicts at k = 6 on one
H200 with the engine as scenes run it (docs/performance.md); the model alone, without reading."""
UNIT_BYTES = 12
"""Memory for a pixel of a unit: its probability, its flag, its label (docs/notes/scale.md)."""
DRIVER_BYTES = 0.75e9, 11.5e3
"""Memory of the driver, and for each unit (docs/notes/scale.md)."""
MANY_FILES = 100_000
"""Files in one folder that file systems list slowly."""
WIDE = 100_000.0
"""Metres across which one stretch and one choice of chunks are a thin sample."""


@dataclass(frozen=True)
class Likeness:
    """What a finished region holds for each pixel."""

    mask: float = 0.02
    """Bytes of the mask."""
    probability: float = 2.0
    """Bytes of the probability."""
    vectors: float = 0.006
    """Bytes of the polygons: their parts, joined parts and GeoParquet."""
    polygons: float = 5e-6
    """Polygons: 20 for each square kilometre at half a metre."""


@dataclass(frozen=True)
class Prices:
    """What things cost, in any currency."""

    gpu_hour: float = 0.0
    gigabyte: float = 0.0
    """Of what is read and written."""


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
    """For the tiles, and for the sample of each pair from which its chunks are chosen."""
    rate: float
    decoded: int
    """Bytes of pixels that are read, after decompression."""
    written: int
    """Bytes of the rasters before compression: more than there will be."""
    stored: int
    """Bytes of all results as they are stored, after the likeness."""
    polygons: int
    """Polygons, after the likeness."""
    worker_memory: int
    """Bytes of a worker for its unit, beside the model."""
    driver_memory: int
    price: float
    """GPU-hours and gigabytes at the given prices."""


def read_likeness(out: str) -> Likeness:
    """Learn from a finished region what a pixel of its kind takes.

    Raises:
        InputError: There is no finished region.
    """
    text = open_store(out).read("manifest.json")
    try:
        said = json.loads(text or b"")
        pixels = sum(unit["height"] * unit["width"] for unit in said["units"])
        files = [(f, n["bytes"]) for unit in said["units"] for f, n in unit["files"].items()]
        layers = sum(file["bytes"] for file in said["polygons"])
        count = sum(file["polygons"] for file in said["polygons"])
        kinds = {
            kind: sum(size for name, size in files if f"/{kind}/" in name) / pixels
            for kind in ("mask", "probability", "polygons")
        }
    except (ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise InputError(
            f"{out} is no finished region of this version; give the --out of one to --like."
        ) from error
    return Likeness(
        mask=kinds["mask"],
        # Of a region without probabilities nothing is known of them.
        probability=kinds["probability"] or Likeness.probability,
        vectors=2 * kinds["polygons"] + layers / pixels,
        polygons=count / pixels,
    )


def estimate(
    scenes: Sequence[PlacedDates],
    units: Sequence[Unit],
    options: SceneOptions,
    *,
    probability: bool,
    survey_block: int = 0,
    rate: float = RATE,
    like: Likeness | None = None,
    prices: Prices | None = None,
) -> Cost:
    """Estimate what units take.

    Args:
        scenes: The pairs with their grids.
        units: Their units, all or those that are missing.
        options: Tile and overlap.
        probability: Whether probabilities are kept.
        survey_block: Side of the blocks that have a survey of their own; 0 for one of all.
        rate: Tiles a second on one GPU.
        like: What a pixel of such a region holds.
        prices: What things cost.
    """
    like, prices = like or Likeness(), prices or Prices()
    tiles, alone, decoded = _count(scenes, units, options, survey_block)
    pixels = sum(unit.height * unit.width for unit in units)
    # The chunks of each pair and block are chosen from a sample, which the model sees, too.
    sample = options.sample if options.selection == "scene" else 0
    sampled = sum(
        min(sample, count_tiles(scene, [_whole(scene)], options))
        * (1 + len(cut_blocks(scene.grid.shape, survey_block)))
        for scene in scenes
    )
    hours = (tiles + sampled) / rate / 3600
    bytes_each = like.mask + like.vectors + (like.probability if probability else 0)
    stored = round(pixels * bytes_each)
    base, each = DRIVER_BYTES
    return Cost(
        units=len(units),
        megapixels=pixels / 1e6,
        tiles=tiles,
        halo=tiles / max(alone, 1) - 1,
        gpu_hours=hours,
        rate=rate,
        decoded=decoded,
        written=pixels * (5 if probability else 1),
        stored=stored,
        polygons=round(pixels * like.polygons),
        worker_memory=UNIT_BYTES * max((u.height * u.width for u in units), default=0),
        driver_memory=round(base + each * len(units)),
        price=hours * prices.gpu_hour + (decoded + stored) / 1e9 * prices.gigabyte,
    )


def find_limits(
    scenes: Sequence[PlacedDates],
    cost: Cost,
    out: str,
    survey_block: int = 0,
) -> Iterator[str]:
    """Say what will break or be worse than it could be, and the way out of each."""
    if cost.polygons > FEW:
        yield f"{cost.polygons:,} polygons are in change.parquet alone, without a GeoPackage"
    if not is_remote(out):
        where = next(folder for folder in Path(out).resolve().parents if folder.exists())
        free = shutil.disk_usage(where).free
        if cost.stored > free:
            yield f"{cost.stored / 1e9:,.1f} GB do not fit into the {free / 1e9:,.1f} GB at {out}"
        if cost.units > MANY_FILES:
            yield (
                f"{cost.units:,} files in each folder are slow to list; give a larger --unit, or "
                "a bucket"
            )
    if cost.driver_memory > 4e9:
        yield f"the driver needs {cost.driver_memory / 1e9:.1f} GB; give a larger --unit"
    for scene in scenes:
        across = _across(scene)
        if across > WIDE and not survey_block:
            yield (
                f"{scene.dates.name} is {across / 1000:,.0f} km across, with one stretch and one "
                "choice of chunks; give --survey-block 32768, for example"
            )
    systems = {crs_name(scene.grid.crs) for scene in scenes}
    if len(systems) > 1:
        yield (
            f"pairs lie in {len(systems)} coordinate systems: one raster for each, polygons in "
            "longitude and latitude"
        )


def _whole(scene: PlacedDates) -> Unit:
    return Unit(scene.dates, 0, 0, *scene.grid.shape)


def _across(scene: PlacedDates) -> float:
    """The longer side of a pair in metres; 0 without a place on Earth."""
    grid = scene.grid
    if not grid.on_earth:
        return 0.0
    west, south, east, north = grid.bounds
    crs = grid.system
    assert crs is not None
    unit = float(crs.axis_info[0].unit_conversion_factor)
    # Radians on a sphere, if it is geographic: the figure is a hint.
    metres = 6.371e6 * unit if crs.is_geographic else unit
    return max(
        (east - west) * metres * (math.cos((south + north) / 2 * unit) if crs.is_geographic else 1),
        (north - south) * metres,
    )


def _count(
    scenes: Sequence[PlacedDates], units: Sequence[Unit], options: SceneOptions, side: int
) -> tuple[int, int, int]:
    """Tiles, tiles if nothing were cut, and bytes of pixels to read."""
    by_pair: dict[Dates, list[Unit]] = {scene.dates: [] for scene in scenes}
    for unit in units:
        by_pair[unit.dates].append(unit)
    tiles = alone = decoded = 0
    for scene in scenes:
        mine, grid = by_pair[scene.dates], scene.grid
        tiles += count_tiles(scene, mine, options, side)
        share = sum(u.height * u.width for u in mine) / (grid.height * grid.width)
        plan = TilePlan(*grid.shape, tile=options.tile, overlap=options.overlap)
        alone += round(len(plan) * share)
        # GDAL keeps decoded blocks: a unit reads its pixels and half a tile around them, not
        # every tile anew.
        margin = 2 * (options.tile - options.overlap)
        pixels = sum((u.height + margin) * (u.width + margin) for u in mine)
        files = scene.dates.before, scene.dates.after
        decoded += pixels * sum(_pixel_bytes(path, options) for path in files)
    return tiles, alone, decoded


def _pixel_bytes(path: str, options: SceneOptions) -> int:
    """The bytes of a pixel in the bands that are read."""
    _, bands = describe(path, "image", options.bands)
    with open_dataset(path) as dataset:
        kinds = [np.dtype(dataset.dtypes[index - 1]) for index in set(bands.indexes)]
    return sum(kind.itemsize for kind in kinds)
